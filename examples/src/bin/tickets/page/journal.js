// What happened, in words.

const at = (id) => document.getElementById(id);

/** Writes it down, for those who look. */
export function log(text) {
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString();
  const line = document.createElement("li");
  line.append(time, text);
  at("log").prepend(line);
  while (at("log").children.length > 100) at("log").lastChild.remove();
}

/** Shows what concerns you, for those who listen too. */
export function show(text, mood) {
  at("notice").textContent = text;
  at("notice").dataset.mood = mood;
}

/** Shows what concerns you, and writes it down. */
export function tell(text, mood) {
  show(text, mood);
  log(text);
}
