// The words of the page.

const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

/** Returns the word for a place in a line. The first place has the index 0. */
export const ordinal = (index) => ORDINALS[index] ?? `number ${index + 1}`;

export const seconds = (milliseconds) => `${(Math.max(0, milliseconds) / 1000).toFixed(1)} s`;

export const times = (count) => (count === 1 ? "once" : count === 2 ? "twice" : `${count} times`);

export const arePaying = (names) =>
  names.length > 3
    ? `${names.length} people are paying`
    : `${names.join(" and ")} ${names.length > 1 ? "are" : "is"} paying`;

/** Returns the meaning of an answer for the buyer, as a word for the style sheet and the tests. */
export function meaning(status, problem) {
  switch (status) {
    case 200: return "yours";
    case 201: return "bought";
    case 204: return "given-back";
    case 409: return "sold";
    case 423: return "waited";
    case 429: return "crowded";
    case 503: return problem === "urn:tickets:problem:store" ? "no-store" : "no-lock";
    default: return problem === "urn:redlock:problem:lost" ? "lost" : "error";
  }
}
