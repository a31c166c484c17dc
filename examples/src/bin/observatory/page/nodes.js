// The nodes: their states, their tokens, and the buttons.

import { advise, at, colour, make, match, say, send } from "/elements.js";

const WORDS = {
  voting: "votes",
  silent: "does not answer",
  reconnecting: "no connection",
  refused: "may not vote",
};
const ACTS = { stop: "Stop", hang: "Hang", slow: "Slow", restart: "Restart", flush: "Flush" };
/** The act that each mode comes from. Its button then ends the mode. */
const OF_MODE = { stopped: "stop", hung: "hang", slow: "slow" };

/** Shows that nothing is known of the nodes, because the server does not answer. */
export function forget() {
  for (const { dataset, children } of at("nodes").children) {
    dataset.state = "unheard";
    say(children[1], "not known");
  }
  say(at("quorum"), "Not known while the connection is lost.");
}

/** The acts after which a node has no vote. */
const ENDS_VOTE = ["stop", "hang", "restart"];

/** What the page has said about the last act. */
let advised = "";

function tellOf(act) {
  advised = act;
  advise(act);
}

const describe = ({ state, seconds }) =>
  state === "quarantined" ? `has restarted, votes in ${seconds} s` : WORDS[state] ?? "is in an unknown state";

function create(node, index, isStaged) {
  const item = make("li");
  item.append(make("strong", node.address), make("span"), make("ul", "", { "aria-label": "Tokens" }));
  if (!isStaged) return item;
  const buttons = make("div", "", { role: "group", "aria-label": node.address });
  for (const [act, text] of Object.entries(ACTS)) {
    const button = make("button", text, { type: "button", "data-act": act, "data-wanted": act });
    button.addEventListener("click", async () => {
      const wanted = button.dataset.wanted;
      tellOf(wanted);
      const error = await send("PUT", `/nodes/${index}`, { act: wanted });
      if (error !== "") at("advice").textContent = error;
    });
    buttons.append(button);
  }
  item.append(buttons);
  return item;
}

function drawTokens(list, keys, index) {
  match(list, keys, (key) => key.name, (key) => {
    const item = make("li");
    item.append(make("span", key.name), make("b"));
    return item;
  }, (item, key) => {
    const token = key.nodes[index];
    const chip = item.lastChild;
    const remaining = token?.remaining_ms ?? null;
    say(chip, token === null || token === undefined ? "–"
      : token.holder + (remaining === null ? "" : ` ${(remaining / 1000).toFixed(1)} s`));
    chip.className = token ? `chip ${colour(token.holder)}` : "none";
  });
}

export function draw({ nodes, keys, stage }) {
  match(at("nodes"), nodes, (node) => node.address,
    (node) => create(node, nodes.indexOf(node), stage !== null),
    (item, node, index) => {
      const [, state, tokens, buttons] = item.children;
      const mode = stage?.modes[index] ?? "up";
      item.dataset.state = node.state;
      item.dataset.mode = mode;
      say(state, describe(node));
      item.title = node.reason ?? "";
      drawTokens(tokens, keys, index);
      for (const button of buttons?.children ?? []) {
        const { act } = button.dataset;
        button.dataset.wanted = OF_MODE[mode] === act ? "start" : act;
        say(button, button.dataset.wanted === act ? ACTS[act] : "Start");
      }
    });
  const voting = nodes.filter((node) => node.votes).length;
  const majority = Math.floor(nodes.length / 2) + 1;
  const isOutage = voting < majority;
  if (isOutage && ENDS_VOTE.includes(advised)) tellOf("outage");
  say(at("quorum"), `${voting} of ${nodes.length} vote, ${majority} are needed${
    isOutage ? ": nobody can get a lock." : "."}`);
  at("quorum").dataset.mood = isOutage ? "bad" : "";
  say(at("rule"), `The client whose token is on a majority (${majority} of ${nodes.length}) holds the lock`);
}
