// The map of the seats.

import { show, tell } from "/journal.js";
import { lacksLock } from "/nodes.js";
import { ask, asking, pauses } from "/sale.js";
import { arePaying, times } from "/words.js";
import { me } from "/you.js";

const seats = document.getElementById("seats");
const totals = document.getElementById("totals");
const isNarrow = matchMedia("(max-width: 40rem)");
const MARKS = { paying: "…", waiting: "…", "you-pay": "…", "you-wait": "…", sold: "×", yours: "✓", pause: "–" };
const NOBODY = { owner: null, payments: 0, paying: [], waiting: [] };

/** The last state from the server. */
let snapshot = null;

/** Returns the state of a seat for the style sheet, in short for the seat, and in words. */
function describe(seat) {
  const { owner, payments, paying, waiting } = snapshot.taken[seat] ?? NOBODY;
  // When the seat is sold, the others get their answers in a moment.
  const others = owner === null ? waiting.filter((name) => name !== me()) : [];
  const line = others.length > 0 ? `${others.length} in line: ${others.join(", ")}` : "";
  const by = paying.length > 0 ? arePaying(paying) : "";
  const about = (state, short, text, hint) => ({ state, short, text, hint, line, payments });
  if (owner === me()) return about("yours", "yours", "yours", "Press to give it back.");
  if (owner !== null) return about("sold", owner, `sold to ${owner}`, "");
  if (paying.includes(me())) return about("you-pay", "you pay", "you are paying", "");
  if (asking.has(seat)) {
    return about("you-wait", "you wait", by === "" ? "you wait" : `you wait, ${by}`, "Press to leave the line.");
  }
  if (pauses.has(seat)) {
    const wait = `again in ${Math.ceil((pauses.get(seat) - Date.now()) / 1000)} s`;
    return about("pause", wait.replace("again ", ""), wait, "");
  }
  const crowd = paying.length > 1 ? `${paying.length} people` : paying[0];
  if (by !== "") return about("paying", crowd, by, "Press to wait in line.");
  if (others.length > 0) return about("waiting", "in a moment", "free in a moment", "Press to wait in line.");
  return about("free", "free", "free", "Press to buy it.");
}

function press(seat) {
  const { state, text } = describe(seat);
  if (asking.has(seat)) {
    // A buyer who is paying cannot leave, since the sale runs to its end anyway.
    const { leaving, name } = asking.get(seat);
    if (snapshot.taken[seat]?.waiting.includes(name)) leaving.abort();
  } else if (state === "pause" || state === "sold") {
    show(`Seat ${seat}: ${text}.`, "bad");
  } else if (lacksLock(snapshot)) {
    tell(`No lock available for seat ${seat}, so nothing was sold.`, "bad");
  } else {
    ask(seat, state === "yours" ? "DELETE" : "POST", draw);
  }
}

function makeSeats() {
  const buttons = Array.from({ length: snapshot.seats }, (_, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "seat";
    button.dataset.seat = index + 1;
    button.tabIndex = index === 0 ? 0 : -1;
    for (const part of ["number", "mark", "state"]) {
      const span = document.createElement("span");
      span.className = part;
      button.append(span);
    }
    button.firstChild.textContent = index + 1;
    button.addEventListener("click", () => press(index + 1));
    return button;
  });
  seats.replaceChildren(...buttons);
  arrange();
}

/** Chooses how many seats are in a row, so that the whole hall is in view. */
function arrange() {
  if (snapshot === null) return;
  const count = snapshot.seats;
  const columns = isNarrow.matches // on a phone the seats must be large enough for a thumb, so the hall may be long
    ? Math.min(count > 130 ? 14 : 10, Math.ceil(Math.sqrt(count * 1.4)))
    : Math.ceil(Math.sqrt(count * 2.5));
  seats.style.setProperty("--columns", columns);
  seats.style.setProperty("--rows", Math.ceil(count / columns));
  seats.dataset.size = count > 130 ? "tiny" : count > 80 || isNarrow.matches ? "small" : "large";
}
isNarrow.addEventListener("change", arrange);

export function draw(news = snapshot) {
  snapshot = news;
  if (snapshot === null) return;
  if (seats.children.length !== snapshot.seats) makeSeats();
  const isShut = lacksLock(snapshot);
  let free = 0;
  let yours = 0;
  for (const button of seats.children) {
    const seat = Number(button.dataset.seat);
    const { state, short, text, hint, line, payments } = describe(seat);
    const twice = payments > 1;
    const words = twice ? `${text}, sold ${times(payments)}` : text;
    free += state !== "sold" && state !== "yours";
    yours += state === "yours";
    // A buyer can still leave the line.
    const isOff = state === "sold" || state === "pause" || state === "you-pay" || (isShut && state !== "you-wait");
    const label = [`Seat ${seat}, ${words}.`, line && `${line}.`, isOff ? "" : hint].filter(Boolean).join(" ");
    if (button.ariaLabel === label && button.dataset.state === state) continue;
    button.dataset.state = state;
    button.dataset.twice = twice;
    button.ariaLabel = label;
    button.ariaDisabled = isOff;
    button.title = label;
    button.children[1].textContent = twice ? "!" : MARKS[state] ?? "";
    button.children[2].textContent = twice ? `sold ${times(payments)}` : short;
  }
  const are = yours === 1 ? "is" : "are";
  totals.textContent = `${free} of ${snapshot.seats} seats are left, ${yours} ${are} yours.`;
}

/** The arrow keys move from seat to seat, and the tab key enters and leaves the hall. */
seats.addEventListener("keydown", (pressed) => {
  const buttons = [...seats.children];
  const here = buttons.indexOf(document.activeElement);
  const columns = Number(seats.style.getPropertyValue("--columns"));
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[pressed.key];
  if (here < 0 || step === undefined) return;
  pressed.preventDefault();
  buttons[here + step]?.focus();
});
seats.addEventListener("focusin", ({ target }) => {
  for (const button of seats.querySelectorAll("[tabindex='0']")) button.tabIndex = -1;
  target.tabIndex = 0;
});
