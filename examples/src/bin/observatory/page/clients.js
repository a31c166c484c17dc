// The clients, and the forms.

import { advise, at, colour, make, match, say, send } from "/elements.js";
import { doing } from "/timeline.js";

function button(text, name, act) {
  const button = make("button", text, { type: "button", "aria-label": `${text} ${name}` });
  button.addEventListener("click", async () => say(at("refusal"), await act()));
  return button;
}

function create({ name }) {
  const item = make("li");
  const run = button("Kill", name, () => {
    const isRunning = item.dataset.runs === "true";
    if (isRunning) advise("kill");
    return send("PUT", `/clients/${name}/runs`, !isRunning);
  });
  const remove = button("Remove", name, () => send("DELETE", `/clients/${name}`));
  item.append(make("b", name, { class: `chip ${colour(name)}` }), make("span"), make("small"), run, remove);
  return item;
}

export function draw(clients) {
  match(at("clients"), clients, (client) => client.name, create, (item, client) => {
    const [, state, plan, run] = item.children;
    item.dataset.runs = client.runs;
    say(state, client.runs ? doing(client.name, client.key) : "is dead");
    const tasks = client.tasks === 1 ? "" : `${client.tasks} tasks, `;
    say(plan, `${client.key}, ${tasks}works for ${client.hold_ms / 1000} s`);
    say(run, client.runs ? "Kill" : "Start");
    run.ariaLabel = `${run.textContent} ${client.name}`;
  });
}

export function listen() {
  at("client").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const plan = {
      key: form.get("key"),
      tasks: Number(form.get("tasks")),
      hold_ms: Math.round(Number(form.get("hold")) * 1000),
    };
    const error = await send("PUT", `/clients/${encodeURIComponent(form.get("name"))}`, plan);
    say(at("refusal"), error);
    if (error === "") event.target.elements.name.value = "";
  });
  at("key").addEventListener("submit", async (event) => {
    event.preventDefault();
    const key = new FormData(event.target).get("key");
    const error = await send("PUT", `/keys/${encodeURIComponent(key)}`);
    say(at("key-refusal"), error);
    if (error === "") event.target.reset();
  });
}
