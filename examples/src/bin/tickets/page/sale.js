// Buying seats, and giving them back.

import { tell } from "/journal.js";
import { headers, me } from "/you.js";
import { meaning } from "/words.js";

export const event = location.pathname.split("/").pop();

/** The open requests, by seat: the controller that aborts each, its buyer, and its begin. */
export const asking = new Map();
/** The times until which not to ask again, by seat, in milliseconds since the epoch. */
export const pauses = new Map();

/** Buys a seat or gives it back, and calls `draw` after each change. */
export async function ask(seat, method, draw) {
  const leaving = new AbortController();
  const name = me();
  asking.set(seat, { leaving, name, since: performance.now() });
  draw();
  try {
    const response = await fetch(`/events/${event}/seats/${seat}`, {
      method,
      headers: headers(name),
      signal: leaving.signal,
    });
    const problem = response.ok ? {} : await response.json().catch(() => ({}));
    const later = Number(response.headers.get("retry-after")) || 0;
    if (later > 0) pause(seat, later, draw);
    answered(seat, response.status, problem, later > 0 ? ` Try again in ${later} s.` : "");
  } catch {
    if (leaving.signal.aborted) {
      tell(`You left the line for seat ${seat}. If it was your turn just then, it will show as yours.`, "good");
    } else {
      tell(`No answer about seat ${seat}: the server is gone. The seat will show the outcome.`, "bad");
    }
  } finally {
    asking.delete(seat);
    draw();
  }
}

function answered(seat, status, problem, again) {
  switch (meaning(status, problem.type)) {
    case "yours": return tell(`Seat ${seat} is yours already.`, "good");
    case "bought": return tell(`Seat ${seat} is yours.`, "good");
    case "given-back": return tell(`You gave seat ${seat} back.`, "good");
    case "sold":
      return problem.owner === undefined
        ? tell(`Seat ${seat} is free already.`, "bad")
        : tell(`Seat ${seat} was sold to ${problem.owner} while you waited.`, "bad");
    case "waited": return tell(`You waited too long for seat ${seat}: the line did not move.${again}`, "bad");
    case "crowded": return tell(`Too many people wait for seat ${seat}.${again}`, "bad");
    case "no-lock": return tell(`No lock available for seat ${seat}, so nothing was sold.${again}`, "bad");
    case "lost": return tell(`The lock of seat ${seat} was lost while you paid, so nothing was sold.`, "bad");
    case "no-store":
      return tell(`The store does not answer. Seat ${seat} will show the outcome.${again}`, "bad");
    default:
      return status === 403
        ? tell(`Seat ${seat} is not yours any more but belongs to ${problem.owner}.`, "bad")
        : tell(`Seat ${seat}: ${problem.detail ?? `the server answered ${status}`}.${again}`, "bad");
  }
}

function pause(seat, later, draw) {
  pauses.set(seat, Date.now() + 1000 * later);
  const tick = setInterval(() => {
    if (pauses.get(seat) <= Date.now()) {
      pauses.delete(seat);
      clearInterval(tick);
    }
    draw();
  }, 250);
}
