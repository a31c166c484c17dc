// The people who pay and wait, and the place of this buyer among them.

import { lacksLock } from "/nodes.js";
import { asking } from "/sale.js";
import { arePaying, ordinal, seconds } from "/words.js";
import { me } from "/you.js";

const at = (id) => document.getElementById(id);
/** The largest number of listed seats. */
const LISTED = 4;

/** The last state from the server, and its time. */
let snapshot = null;
let heard = 0;

const isMine = ({ paying, waiting }) => paying.includes(me()) || waiting.includes(me());

/** Returns the remaining time of the payment for a seat, in milliseconds, if the payment succeeds. */
function left({ paying, paying_for_ms }) {
  if (paying.length === 0) return null;
  return Math.max(0, snapshot.payment_ms - paying_for_ms - (performance.now() - heard));
}

/** Returns the seats in demand, those of this buyer first. */
function busySeats() {
  return Object.entries(snapshot.taken)
    .filter(([, { owner, paying, waiting }]) => owner === null && paying.length + waiting.length > 0)
    .sort(([, one], [, other]) => isMine(other) - isMine(one));
}

const nobodyPays = () => (lacksLock(snapshot) ? "no lock available" : "free in a moment");

function describePlace(seat, { paying, waiting }) {
  if (paying.includes(me())) return `You are paying for seat ${seat}.`;
  const place = waiting.indexOf(me());
  if (place < 0) return "";
  const who = paying.length > 0 ? arePaying(paying) : nobodyPays();
  return `You are ${ordinal(place)} in line for seat ${seat}: ${who}.`;
}

function listSeat([seat, taken]) {
  const { paying, waiting } = taken;
  const item = document.createElement("li");
  const title = document.createElement("strong");
  title.textContent = `Seat ${seat}`;
  const who = document.createElement("span");
  who.textContent = paying.length > 0 ? arePaying(paying) : nobodyPays();
  item.append(title, who);
  if (paying.length > 0) {
    const bar = document.createElement("progress");
    bar.ariaLabel = "How much of the payment is over";
    bar.max = snapshot.payment_ms || 1;
    const time = document.createElement("time");
    time.ariaHidden = "true";
    item.append(time, bar);
    item.advance = () => {
      bar.value = bar.max - left(taken);
      time.textContent = seconds(left(taken));
    };
  }
  if (waiting.length > 0) {
    const line = document.createElement("span");
    line.className = "line";
    const names = waiting.map((name) => (name === me() ? "you" : name));
    const more = names.length > 8 ? ` and ${names.length - 8} more` : "";
    line.textContent = `In line: ${names.slice(0, 8).join(", ")}${more}`;
    item.append(line);
  }
  return item;
}

export function draw(news = snapshot) {
  if (news !== snapshot) heard = performance.now();
  snapshot = news;
  if (snapshot === null) return;
  const busy = busySeats();
  const items = busy.slice(0, LISTED).map(listSeat);
  if (items.length === 0 || busy.length > LISTED) {
    const rest = document.createElement("li");
    rest.className = "faint";
    rest.textContent = items.length === 0 ? "Nobody is paying." : `And ${busy.length - LISTED} more seats.`;
    items.push(rest);
  }
  at("lines").replaceChildren(...items);
  const places = busy.map(([seat, taken]) => describePlace(seat, taken)).filter(Boolean).join("\n");
  if (at("place").textContent !== places) at("place").textContent = places;
  at("place").hidden = places === "";
  at("clock").hidden = places === "";
  tick();
}

/** Returns a sentence about the remaining time until the buyer gets an answer for a seat. */
function describeTime(seat, taken) {
  const time = left(taken);
  if (time === null) {
    const waited = performance.now() - (asking.get(Number(seat))?.since ?? performance.now());
    return `You have waited ${seconds(waited)} of at most ${seconds(snapshot.wait_ms)}.`;
  }
  if (taken.paying.includes(me())) return `${seconds(time)} to go.`;
  return time > 0 ? `You will know in about ${seconds(time)}.` : "You will know in a moment.";
}

/** Updates the times. Screen readers do not announce them, because they change all the time. */
function tick() {
  if (snapshot === null) return;
  for (const item of at("lines").children) item.advance?.();
  const mine = busySeats().filter(([, taken]) => isMine(taken));
  if (mine.length > 0) {
    const [seat, taken] = mine[0];
    const which = mine.length > 1 ? `Seat ${seat}: ` : "";
    at("clock").textContent = which + describeTime(seat, taken);
  }
}
setInterval(tick, 100);
