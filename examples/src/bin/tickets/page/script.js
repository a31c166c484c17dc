"use strict";

const event = location.pathname.split("/").pop();
const at = (id) => document.getElementById(id);

/** What the server said last. */
let snapshot = null;
/** The requests that are under way, by seat: what ends them, and in whose name they are. */
const asking = new Map();
/** Until when not to ask again, by seat, in milliseconds since the epoch. */
const pauses = new Map();

// Who you are: a tab is a person.

const me = () => sessionStorage.getItem("name") ?? "";

function madeUpName() {
  const names = ["Ada", "Bela", "Carl", "Dora", "Emil", "Fay", "Gus", "Hedy", "Ivo", "June"];
  return `${names[Math.floor(Math.random() * names.length)]} ${Math.floor(10 + Math.random() * 90)}`;
}

function askForName() {
  at("name").value = me() || madeUpName();
  at("who").showModal();
  at("name").select();
}

at("introduction").addEventListener("submit", (submission) => {
  submission.preventDefault();
  const name = at("name").value.trim();
  if (name !== "") {
    sessionStorage.setItem("name", name);
    at("who").close();
    at("me").textContent = name;
    draw();
  }
});
at("who").addEventListener("cancel", (escape) => me() === "" && escape.preventDefault());
at("rename").addEventListener("click", askForName);

// What happens, in words.

function log(text) {
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString();
  const line = document.createElement("li");
  line.append(time, text);
  at("log").prepend(line);
  while (at("log").children.length > 100) at("log").lastChild.remove();
}

/** Says what concerns you, to those who listen too. */
function tell(text, mood) {
  at("notice").textContent = text;
  at("notice").dataset.mood = mood;
  log(text);
}

function logChanges(before, now) {
  const seats = new Set([...Object.keys(before.taken), ...Object.keys(now.taken)]);
  for (const seat of seats) {
    const was = before.taken[seat]?.owner ?? null;
    const is = now.taken[seat]?.owner ?? null;
    if (was === is || was === me() || is === me() || asking.has(Number(seat))) continue;
    log(is === null ? `${was} gave seat ${seat} back.` : `Seat ${seat} was sold to ${is}.`);
  }
}

// Buying, and giving back.

async function ask(seat, method) {
  const leaving = new AbortController();
  const name = me();
  asking.set(seat, { leaving, name });
  draw();
  try {
    const response = await fetch(`/events/${event}/seats/${seat}`, {
      method,
      headers: { buyer: encodeURIComponent(name) },
      signal: leaving.signal,
    });
    const problem = response.ok ? {} : await response.json().catch(() => ({}));
    answered(seat, response, problem);
  } catch {
    if (leaving.signal.aborted) {
      tell(`You left the line for seat ${seat}. If it was your turn just then, it will show as yours.`, "good");
    } else {
      tell(`No answer about seat ${seat}: the server is gone. The seat will show what became of it.`, "bad");
    }
  } finally {
    asking.delete(seat);
    draw();
  }
}

function answered(seat, response, problem) {
  const later = Number(response.headers.get("retry-after")) || 0;
  if (later > 0) pause(seat, later);
  const again = later > 0 ? ` Try again in ${later} s.` : "";
  switch (response.status) {
    case 200: return tell(`Seat ${seat} is yours already.`, "good");
    case 201: return tell(`Seat ${seat} is yours.`, "good");
    case 204: return tell(`You gave seat ${seat} back.`, "good");
    case 409:
      return problem.owner === undefined
        ? tell(`Seat ${seat} is free already.`, "bad")
        : tell(`Seat ${seat} was sold to ${problem.owner} while you waited.`, "bad");
    case 403: return tell(`Seat ${seat} is not yours any more but belongs to ${problem.owner}.`, "bad");
    case 423: return tell(`You waited long enough for seat ${seat}: the line did not move.${again}`, "bad");
    case 429: return tell(`Too many people wait for seat ${seat}.${again}`, "bad");
    case 503:
      return problem.type === "urn:tickets:problem:store"
        ? tell(`The store does not answer; seat ${seat} will show what became of it.${again}`, "bad")
        : tell(`No lock is to be had for seat ${seat}, so nothing was sold.${again}`, "bad");
    default:
      return tell(`Seat ${seat}: ${problem.detail ?? `the server answered ${response.status}`}.${again}`, "bad");
  }
}

function pause(seat, seconds) {
  pauses.set(seat, Date.now() + 1000 * seconds);
  const tick = setInterval(() => {
    if (pauses.get(seat) <= Date.now()) {
      pauses.delete(seat);
      clearInterval(tick);
    }
    draw();
  }, 250);
}

function press(seat) {
  const { state } = describe(seat);
  if (asking.has(seat)) {
    // Who pays already cannot leave: the sale runs to its end without them.
    const { leaving, name } = asking.get(seat);
    if (snapshot.taken[seat]?.waiting.includes(name)) leaving.abort();
  } else if (pauses.has(seat) || state === "sold") {
    at("notice").textContent = `Seat ${seat}: ${describe(seat).text}.`;
    at("notice").dataset.mood = "bad";
  } else {
    ask(seat, state === "yours" ? "DELETE" : "POST");
  }
}

// The map of the seats.

/** Returns the state of a seat for the style sheet, and in words. */
function describe(seat) {
  const { owner, payments, paying, waiting } = snapshot.taken[seat]
    ?? { owner: null, payments: 0, paying: [], waiting: [] };
  // When the seat is sold the others are told in a moment.
  const others = owner === null ? waiting.filter((name) => name !== me()) : [];
  const line = others.length > 0 ? `${others.length} in line: ${others.join(", ")}` : "";
  const by = paying.length > 0 ? `${paying.join(" and ")} ${paying.length > 1 ? "pay" : "pays"}` : "";
  const wait = pauses.has(seat) ? `again in ${Math.ceil((pauses.get(seat) - Date.now()) / 1000)} s` : "";
  const about = (state, text, hint) => ({ state, text, hint, line, payments });
  if (owner === me()) return about("yours", "yours", "Press to give it back.");
  if (owner !== null) return about("sold", `sold to ${owner}`, "");
  if (paying.includes(me())) return about("you-pay", "you pay …", "");
  if (asking.has(seat)) return about("you-wait", by === "" ? "you wait" : `you wait, ${by}`, "Press to leave the line.");
  if (wait !== "") return about("pause", wait, "");
  if (by !== "") return about("paying", by, "Press to wait in line.");
  if (others.length > 0) return about("waiting", "free in a moment", "Press to wait in line.");
  return about("free", "free", "Press to buy it.");
}

function makeSeats(count) {
  const buttons = Array.from({ length: count }, (_, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "seat";
    button.dataset.seat = index + 1;
    for (const part of ["number", "state", "line"]) {
      const span = document.createElement("span");
      span.className = part;
      button.append(span);
    }
    button.firstChild.textContent = index + 1;
    button.addEventListener("click", () => press(index + 1));
    return button;
  });
  at("seats").replaceChildren(...buttons);
}

function draw() {
  if (snapshot === null) return;
  if (at("seats").children.length !== snapshot.seats) makeSeats(snapshot.seats);
  let free = 0;
  let yours = 0;
  for (const button of at("seats").children) {
    const seat = Number(button.dataset.seat);
    const { state, text, hint, line, payments } = describe(seat);
    const twice = payments > 1;
    const words = twice ? `${text}, sold ${payments} times` : text;
    free += state !== "sold" && state !== "yours";
    yours += state === "yours";
    const label = [`Seat ${seat}, ${words}.`, line && `${line}.`, hint].filter(Boolean).join(" ");
    if (button.ariaLabel === label && button.dataset.state === state) continue;
    button.dataset.state = state;
    button.dataset.twice = twice;
    button.ariaLabel = label;
    button.ariaDisabled = state === "sold" || state === "pause" || state === "you-pay";
    button.title = [line, hint].filter(Boolean).join("\n");
    button.children[1].textContent = words;
    button.children[2].textContent = line;
  }
  at("totals").textContent =
    `${free} of ${snapshot.seats} seats are to be had, ${yours} ${yours === 1 ? "is" : "are"} yours.`;
}

/** The arrow keys go from seat to seat. */
at("seats").addEventListener("keydown", (pressed) => {
  const buttons = [...at("seats").children];
  const here = buttons.indexOf(document.activeElement);
  const columns = buttons.filter((it) => it.offsetTop === buttons[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[pressed.key];
  if (here >= 0 && step !== undefined) {
    pressed.preventDefault();
    buttons[here + step]?.focus();
  }
});

// What the server says.

function show(news) {
  if (snapshot !== null) logChanges(snapshot, news);
  snapshot = news;
  const warnings = [];
  if (!news.store_answers) warnings.push("The store does not answer. What you see may be old, and nothing can be sold.");
  if (!news.locked) warnings.push("This server sells without a lock.");
  const twice = news.sold_twice;
  if (twice > 0) warnings.push(`A seat that was sold already was sold again, ${twice} ${twice === 1 ? "time" : "times"}.`);
  at("warning").textContent = warnings.join(" ");
  at("warning").hidden = warnings.length === 0;
  const links = news.events.map((name) => {
    const link = document.createElement("a");
    link.href = `/events/${name}`;
    link.textContent = name;
    if (name === event) link.ariaCurrent = "page";
    return link;
  });
  if (at("events").children.length !== links.length) at("events").replaceChildren(...links);
  draw();
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
  source.addEventListener("error", () => {
    connection("lost", "The connection is lost. Trying again …");
    // The browser tries again by itself, unless the server answered with an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

document.title = `Tickets for ${event}`;
at("event").textContent = `Tickets for ${event}`;
at("me").textContent = me();
if (me() === "") askForName();
connect();
