// The log and the notice on the page.

const at = (id) => document.getElementById(id);

/** Adds a line to the log. */
export function log(text) {
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString();
  const line = document.createElement("li");
  line.append(time, text);
  at("log").prepend(line);
  while (at("log").children.length > 100) at("log").lastChild.remove();
}

/** Shows a notice to the buyer, which screen readers announce. */
export function show(text, mood) {
  at("notice").textContent = text;
  at("notice").dataset.mood = mood;
}

/** Shows a notice to the buyer, and adds it to the log. */
export function tell(text, mood) {
  show(text, mood);
  log(text);
}
