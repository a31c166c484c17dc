// The demonstration: twenty buyers want one seat, with the lock and without it.

import { log } from "/journal.js";
import { lacksLock } from "/nodes.js";
import { meaning, times } from "/words.js";
import { headers, me } from "/you.js";

const SEAT = 1;

/** The states of a buyer: the mark, and the words for one and for several buyers. */
const STATES = {
  paying: ["…", "is paying", "are paying"],
  waiting: ["·", "waits", "wait"],
  owner: ["✓", "has the seat", "have the seat"],
  robbed: ["!", "paid for nothing", "paid for nothing"],
  sold: ["×", "was told that it is sold", "were told that it is sold"],
  waited: ["×", "waited too long", "waited too long"],
  crowded: ["×", "found the line too long", "found the line too long"],
  "no-lock": ["×", "was told: no lock available", "were told: no lock available"],
  "no-store": ["×", "got no answer from the store", "got no answer from the store"],
  lost: ["×", "lost the lock, and did not buy", "lost the lock, and did not buy"],
  error: ["×", "met an error", "met an error"],
  left: ["×", "left without the seat", "left without the seat"],
};

/** One of the two halls. */
class Rush {
  constructor(hall) {
    this.hall = hall;
    this.panel = document.getElementById(hall);
    this.button = this.panel.querySelector("button");
    /** The state of each buyer, by name. */
    this.buyers = new Map();
    /** Whether this page has sent the buyers and waits for the answers. */
    this.isRunning = false;
    /** Whether this page has not seen any buyers yet. */
    this.isNew = true;
    /** Whether the buyers need a lock, and there is none. */
    this.isShut = false;
    /** Whether the last state from the server has buyers. */
    this.isBusy = false;
    /** Whether the answers have arrived before the server's last state. */
    this.isSettled = false;
    this.button.addEventListener("click", () => this.send());
  }

  find(selector) {
    return this.panel.querySelector(selector);
  }

  async send() {
    if (this.isRunning || this.isShut) return;
    this.isRunning = true;
    this.isNew = false;
    this.isSettled = false;
    this.buyers.clear();
    this.find(".tally").replaceChildren();
    this.say("They are coming …", "");
    this.draw();
    try {
      const response = await fetch(`/rushes/${this.hall}`, { method: "POST", headers: headers(me()) });
      const outcome = await response.json().catch(() => ({}));
      if (response.ok) this.finish(outcome);
      else if (response.status === 423) this.say("Another page has sent them already. Wait a moment.", "bad");
      else this.say(`They did not come: ${outcome.detail ?? `the server answered ${response.status}`}.`, "bad");
    } catch {
      this.say("No answer: the server is gone.", "bad");
    } finally {
      this.isRunning = false;
      this.draw();
    }
  }

  /** Shows the state of the hall while the buyers are there. */
  watch({ owner, payments, paying, waiting }) {
    const areThere = paying.length + waiting.length > 0;
    if (this.isSettled) {
      this.isSettled = areThere;
    } else if (areThere) {
      if (!this.isBusy) this.buyers.clear(); // others, sent from another page
      this.isBusy = true;
      this.isNew = false;
      for (const name of this.buyers.keys()) this.leave(name, owner);
      for (const name of paying) this.buyers.set(name, "paying");
      for (const name of waiting) this.buyers.set(name, "waiting");
      if (payments > 0) this.conclude(payments, owner);
      else this.say(this.describe(paying, waiting), "");
    } else if (this.isBusy || (payments > 0 && this.isNew)) {
      this.isBusy = false;
      for (const name of this.buyers.keys()) this.leave(name, owner);
      if (this.isNew) this.find(".tally li").textContent = "This was before you opened the page.";
      this.conclude(payments, owner);
    }
    this.draw();
  }

  /** Guesses the answer to a buyer who is gone, until the answers arrive. */
  leave(name, owner) {
    const state = this.buyers.get(name);
    if (name === owner) this.buyers.set(name, "owner");
    else if (owner === null) this.buyers.set(name, "left");
    else if (state === "paying" || state === "owner") this.buyers.set(name, "robbed");
    else if (state === "waiting") this.buyers.set(name, "sold");
  }

  describe(paying, waiting) {
    if (paying.length === 0) return `${waiting.length} people wait.`;
    if (paying.length > 1) return `${paying.length} people are paying for the same seat.`;
    return `${paying[0]} is paying. ${waiting.length} people wait.`;
  }

  /** Shows the answers to the buyers. */
  finish({ sold, owner, buyers }) {
    this.buyers.clear();
    for (const { name, status, problem } of buyers) {
      const state = meaning(status, problem);
      this.buyers.set(name, state !== "bought" ? state : name === owner ? "owner" : "robbed");
    }
    this.isSettled = this.isBusy;
    this.isBusy = false;
    this.conclude(sold, owner);
    this.draw();
    const how = this.hall === "with-lock" ? "with the lock" : "without the lock";
    log(`Twenty buyers, ${how}: ${this.find(".headline").textContent}`);
  }

  conclude(sold, owner) {
    if (sold === 0) this.say("Not sold.", "bad");
    else if (sold === 1) this.say(`Sold once, to ${owner}.`, "good");
    else this.say(`Sold ${times(sold)}! Only ${owner} has it.`, "bad");
  }

  say(text, mood) {
    const headline = this.find(".headline");
    if (headline.textContent !== text) headline.textContent = text;
    headline.dataset.mood = mood;
  }

  draw() {
    this.button.ariaDisabled = this.isRunning || this.isShut;
    const buyers = [...this.buyers].sort(([one], [other]) => one.localeCompare(other));
    this.find(".buyers").replaceChildren(...buyers.map(([name, state]) => {
      const buyer = document.createElement("li");
      const [mark, words] = STATES[state];
      buyer.dataset.state = state;
      buyer.textContent = `${mark} ${name}`;
      buyer.title = `${name} ${words}`;
      return buyer;
    }));
    const counts = Object.entries(STATES).map(([state, [mark, one, several]]) => {
      const count = buyers.filter(([, it]) => it === state).length;
      const line = document.createElement("li");
      line.dataset.state = state;
      line.textContent = `${mark} ${count} ${count === 1 ? one : several}`;
      return count > 0 ? line : null;
    });
    if (buyers.length > 0) this.find(".tally").replaceChildren(...counts.filter(Boolean));
  }
}

const rushes = new Map(["with-lock", "without-lock"].map((hall) => [hall, new Rush(hall)]));

/** Shows the state of one of the halls. */
export function show(news) {
  const nobody = { owner: null, payments: 0, paying: [], waiting: [] };
  const rush = rushes.get(news.event.replace("demo:", ""));
  if (rush === undefined) return;
  rush.isShut = lacksLock(news);
  rush.watch(news.taken[SEAT] ?? nobody);
}
