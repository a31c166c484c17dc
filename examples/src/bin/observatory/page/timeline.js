// The time line: for each key and client, when it waited and when it had the lock.

import { at, colour, make, match, say } from "/elements.js";

/** What is remembered, in milliseconds. */
const MEMORY = 60_000;
const ROW = 26;
const HEAD = 20;
const LEFT = 64;
const NS = "http://www.w3.org/2000/svg";

/** The lanes, by key and client. Each has waits, holds and marks. */
const lanes = new Map();
/** The wait and the hold of each request that has not ended. */
const open = new Map();

function lane({ key, client }) {
  const id = `${key} ${client}`;
  if (!lanes.has(id)) lanes.set(id, { key, client, waits: [], holds: [], marks: [] });
  return lanes.get(id);
}

/** Takes what has happened to a request. */
function take({ kind, at_ms: time, client, key, request }) {
  const id = `${client} ${key} ${request}`;
  const here = lane({ key, client });
  const now = open.get(id) ?? {};
  const endWait = () => { if (now.wait) now.wait.end = time; };
  const endHold = (how) => {
    if (now.hold) Object.assign(now.hold, { end: time, how });
    open.delete(id);
  };
  switch (kind) {
    case "requested":
      now.wait = { start: time };
      here.waits.push(now.wait);
      open.set(id, now);
      break;
    case "attempted":
      here.marks.push({ time, mark: "╵" });
      break;
    case "acquired":
    case "taken-over":
      endWait();
      now.wait = undefined;
      now.hold = { start: time };
      here.holds.push(now.hold);
      if (kind === "taken-over") here.marks.push({ time, mark: "▸" });
      open.set(id, now);
      break;
    case "extended":
      here.marks.push({ time, mark: "◆" });
      break;
    case "extension-failed":
      here.marks.push({ time, mark: "◇" });
      break;
    case "failed":
      endWait();
      open.delete(id);
      break;
    case "released":
    case "handed-over":
      endHold(kind);
      break;
    case "lost":
      here.marks.push({ time, mark: "✕" });
      endHold(kind);
      break;
    case "died":
      here.marks.push({ time, mark: "✕" });
      for (const [other, { wait, hold }] of open) {
        if (!other.startsWith(`${client} ${key} `)) continue;
        if (wait) wait.end = time;
        if (hold) Object.assign(hold, { end: time, how: kind });
        open.delete(other);
      }
      break;
  }
}

/** Takes what has happened since the last message. */
export function read(entries, now) {
  for (const entry of entries) if (entry.client !== undefined) take(entry);
  const isRecent = ({ end }) => end === undefined || end > now - MEMORY;
  for (const [id, it] of lanes) {
    it.waits = it.waits.filter(isRecent);
    it.holds = it.holds.filter(isRecent);
    it.marks = it.marks.filter(({ time }) => time > now - MEMORY);
    if (it.waits.length + it.holds.length + it.marks.length === 0) lanes.delete(id);
  }
}

/** Returns the lanes of a key, in the order of the clients' names. */
const lanesOf = (key) => [...lanes.values()].filter((it) => it.key === key).sort((a, b) => a.client < b.client ? -1 : 1);

const isOpen = ({ end }) => end === undefined;

/** Returns what a client does at this moment. */
export function doing(client, key) {
  const it = lanes.get(`${key} ${client}`);
  const waits = it?.waits.filter(isOpen).length ?? 0;
  if (it?.holds.some(isOpen)) return waits === 0 ? "holds" : "holds, and the next task waits";
  return waits > 0 ? "waits" : "rests";
}

const list = (names) => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

/** Says for each key who has it, in words. */
export function drawHolders(keys, isStaged) {
  match(at("holders"), keys, ({ name }) => name, () => make("li"), (item, key) => {
    const here = lanesOf(key.name);
    const holders = here.filter((it) => it.holds.some(isOpen)).map((it) => it.client);
    const waiters = here.filter((it) => it.waits.some(isOpen) && !holders.includes(it.client)).map((it) => it.client);
    const votes = key.nodes.filter((token) => token !== null && token.holder === holders[0]).length;
    const held = holders.length === 0 ? `Nobody holds ${key.name}`
      : `${list(holders)} ${holders.length === 1 ? "holds" : "hold"} ${key.name}, with ${votes} of ${key.nodes.length} tokens`;
    const waiting = waiters.length === 0 ? "" : `; ${list(waiters)} ${waiters.length === 1 ? "waits" : "wait"}`;
    say(item, isStaged || holders.length > 0 || key.verdict === null ? `${held}${waiting}.` : `${key.name}: ${key.verdict}.`);
  });
}

function shape(name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Draws the last seconds, as many as there is room for. */
export function draw(now) {
  const width = at("timeline").clientWidth;
  const span = width < 600 ? 12_000 : 24_000;
  const from = now - span;
  const x = (time) => LEFT + (Math.max(time, from) - from) / span * (width - LEFT);
  const rules = [];
  const shapes = [];
  let y = 0;
  const keys = [...new Set([...lanes.values()].map((it) => it.key))].sort();
  for (const key of keys) {
    shapes.push(shape("text", { x: 0, y: y + 14, class: "key" }, key));
    y += HEAD;
    for (const it of lanesOf(key)) {
      shapes.push(shape("text", { x: 8, y: y + 17, class: "client" }, it.client.slice(0, 8)));
      rules.push(shape("line", { x1: LEFT, x2: width, y1: y + ROW, y2: y + ROW, class: "rule" }));
      for (const { start, end = now } of it.waits) {
        if (end < from) continue;
        shapes.push(shape("line", { x1: x(start), x2: x(end), y1: y + 20, y2: y + 20, class: "wait" }));
      }
      for (const { start, end = now, how = "" } of it.holds) {
        if (end < from) continue;
        const room = Math.max(2, x(end) - x(start));
        shapes.push(shape("rect", { x: x(start), y: y + 4, width: room, height: 13, rx: 3, class: `hold ${colour(it.client)} ${how}` }));
      }
      for (const { time, mark } of it.marks) {
        if (time < from) continue;
        const isRaised = mark !== "╵";
        shapes.push(shape("text", { x: x(time), y: y + (isRaised ? 15 : 26), class: `mark ${mark === "✕" ? "bad" : ""}` }, mark));
      }
      y += ROW;
    }
    y += 6;
  }
  for (let second = Math.ceil(from / 4000) * 4000; second <= now; second += 4000) {
    if (second < 0) continue;
    rules.push(shape("line", { x1: x(second), x2: x(second), y1: 0, y2: y, class: "rule" }));
    shapes.push(shape("text", { x: x(second) + 3, y: y + 10, class: "second" }, `${second / 1000} s`));
  }
  const svg = at("timeline").firstElementChild ?? at("timeline").appendChild(shape("svg", {}));
  svg.setAttribute("width", width);
  svg.setAttribute("height", y + 14);
  svg.replaceChildren(...rules, ...shapes);
}
