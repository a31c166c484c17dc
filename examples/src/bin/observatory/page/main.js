// Receives the state from the server, and shows it.

import * as clients from "/clients.js";
import { at, make, say } from "/elements.js";
import * as nodes from "/nodes.js";
import * as timeline from "/timeline.js";

/** How many lines the log has. */
const LINES = 100;
/** The time between two drawings of the time line. */
const FRAME = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 100;

/** How far the server's time is ahead of this page's. */
let ahead = null;
/** The number of the last entry in the log. */
let logged = -1;

/** What happened last to each client under each key. */
const last = new Map();

function log(entries) {
  for (const { number, at_ms: time, kind, text, client, key } of entries) {
    logged = number;
    const before = last.get(`${client} ${key}`);
    last.set(`${client} ${key}`, kind);
    // A failed extension is tried again several times a second.
    if (text === null || (kind === "extension-failed" && kind === before)) continue;
    const line = make("li", "", { "data-kind": kind });
    line.append(make("time", `${(time / 1000).toFixed(1)} s`), text);
    at("log").prepend(line);
  }
  while (at("log").children.length > LINES) at("log").lastChild.remove();
}

function show(message) {
  const isStaged = message.stage !== null;
  // After a reconnection, the server sends what is known already.
  const entries = message.entries.filter(({ number }) => number > logged);
  ahead = message.now_ms - performance.now();
  timeline.read(entries, message.now_ms);
  timeline.drawHolders(message.keys, isStaged);
  log(entries);
  nodes.draw(message);
  for (const element of document.querySelectorAll(".staged")) element.hidden = !isStaged;
  for (const element of document.querySelectorAll(".real")) element.hidden = isStaged;
  if (!isStaged) return;
  clients.draw(message.stage.clients);
  const { overlaps } = message.stage;
  say(at("overlaps"), overlaps === 0 ? "No two clients have worked under one key at once."
    : `Two clients have worked under one key at once: ${overlaps === 1 ? "once" : `${overlaps} times`}!`);
  at("overlaps").dataset.mood = overlaps === 0 ? "good" : "bad";
}

function connection(state, text) {
  at("connection").dataset.state = state;
  say(at("connection"), text);
}

function connect() {
  const source = new EventSource("/live");
  source.addEventListener("message", (message) => {
    show(JSON.parse(message.data));
    connection("live", "Live");
  });
  source.addEventListener("error", () => {
    connection("lost", "The connection is lost. Trying again …");
    nodes.forget();
    // The browser reconnects by itself, unless the server answered with an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

clients.listen();
connect();
setInterval(() => {
  const isLive = at("connection").dataset.state === "live";
  if (isLive && !document.hidden) timeline.draw(performance.now() + ahead);
}, FRAME);
