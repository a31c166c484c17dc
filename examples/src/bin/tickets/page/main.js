// Receives the state from the server, and shows it.

import * as hall from "/hall.js";
import { log } from "/journal.js";
import * as lines from "/lines.js";
import * as nodes from "/nodes.js";
import * as rush from "/rush.js";
import { asking, event } from "/sale.js";
import { introduce, me } from "/you.js";

const at = (id) => document.getElementById(id);

/** The last state from the server. */
let snapshot = null;

function logChanges(before, now) {
  const seats = new Set([...Object.keys(before.taken), ...Object.keys(now.taken)]);
  for (const seat of seats) {
    const was = before.taken[seat]?.owner ?? null;
    const is = now.taken[seat]?.owner ?? null;
    if (was === is || was === me() || is === me() || asking.has(Number(seat))) continue;
    log(is === null ? `${was} gave seat ${seat} back.` : `Seat ${seat} was sold to ${is}.`);
  }
}

function warn(news) {
  const warnings = [];
  if (!news.store_answers) warnings.push("The store does not answer. What you see may be old, and nothing can be sold.");
  if (!news.locked) warnings.push("This server sells without a lock.");
  else if (nodes.lacksLock(news)) warnings.push(nodes.shortage(news.nodes), "Nothing can be sold.");
  const twice = news.sold_twice;
  if (twice > 0) warnings.push(`A seat that was sold already was sold again, ${twice} ${twice === 1 ? "time" : "times"}.`);
  const text = warnings.join(" ");
  if (at("warning").textContent !== text) at("warning").textContent = text;
  at("warning").hidden = text === "";
}

function link(name) {
  const link = document.createElement("a");
  link.href = `/events/${name}`;
  link.textContent = name;
  if (name === event) link.ariaCurrent = "page";
  return link;
}

function show(news) {
  if (snapshot !== null) logChanges(snapshot, news);
  snapshot = news;
  warn(news);
  nodes.draw(news.nodes);
  if (at("events").children.length !== news.events.length) at("events").replaceChildren(...news.events.map(link));
  hall.draw(news);
  lines.draw(news);
}

function connection(state, text) {
  if (at("connection").textContent === text) return;
  at("connection").dataset.state = state;
  at("connection").textContent = text;
}

function connect() {
  const source = new EventSource(`/events/${event}/live`);
  source.addEventListener("message", (message) => {
    show(JSON.parse(message.data));
    connection("live", `Live from ${snapshot.server}`);
  });
  source.addEventListener("rush", (message) => rush.show(JSON.parse(message.data)));
  source.addEventListener("error", () => {
    connection("lost", "The connection is lost. Trying again …");
    nodes.forget(snapshot?.nodes ?? []);
    // The browser reconnects by itself, unless the server answered with an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

document.title = `Tickets for ${event}`;
at("event").textContent = `Tickets for ${event}`;
introduce(() => {
  hall.draw();
  lines.draw();
});
connect();
