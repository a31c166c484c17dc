// The lights of the lock nodes.

const at = (id) => document.getElementById(id);
const WORDS = {
  voting: "votes",
  silent: "does not answer",
  reconnecting: "no connection",
  refused: "may not vote",
  unheard: "not known",
};

const describe = ({ state, seconds }) =>
  state === "quarantined" ? `votes in ${seconds} s` : WORDS[state] ?? "is in an unknown state";

const isVoting = ({ state }) => state === "voting";
const needed = (nodes) => Math.floor(nodes.length / 2) + 1;

/** Returns a warning if too few nodes vote, or an empty string. */
export function shortage(nodes) {
  const voting = nodes.filter(isVoting).length;
  return voting < needed(nodes)
    ? `No lock available: ${voting} of ${nodes.length} lock nodes vote, and ${needed(nodes)} are needed.`
    : "";
}

/** Returns whether nothing of this hall can be sold, because its sales need a lock and there is none. */
export const lacksLock = ({ locked, nodes }) => locked && shortage(nodes) !== "";

/** Shows that nothing is known of these nodes, because their server does not answer. */
export function forget(nodes) {
  draw(nodes.map(({ address }) => ({ address, state: "unheard" })));
  at("quorum").textContent = "Not known while the connection is lost.";
}

export function draw(nodes) {
  const items = nodes.map((node) => {
    const item = document.createElement("li");
    item.dataset.state = node.state;
    const address = document.createElement("strong");
    address.textContent = node.address;
    const state = document.createElement("span");
    state.textContent = describe(node);
    item.append(address, state);
    item.title = node.state === "quarantined" ? "It has just started." : node.reason ?? "";
    if (node.state === "refused" || node.state === "unknown") {
      const reason = document.createElement("small");
      reason.textContent = node.reason;
      item.append(reason);
    }
    return item;
  });
  at("nodes").replaceChildren(...items);
  const count = `${nodes.filter(isVoting).length} of ${nodes.length} vote, ${needed(nodes)} are needed.`;
  if (at("quorum").textContent !== count) at("quorum").textContent = count;
}
