// Elements of the page, and requests to the server.

export const at = (id) => document.getElementById(id);

/** Makes an element with a text. */
export function make(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Sets a text, if it is another one: a screen reader announces each change. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the children of a list match these items, and keeps those that are there, with their focus. */
export function match(list, items, name, create, update) {
  const old = new Map([...list.children].map((child) => [child.dataset.name, child]));
  items.forEach((item, index) => {
    const child = old.get(name(item)) ?? create(item);
    child.dataset.name = name(item);
    old.delete(name(item));
    if (list.children[index] !== child) list.insertBefore(child, list.children[index] ?? null);
    update(child, item, index);
  });
  for (const child of old.values()) child.remove();
}

const colours = new Map();

/** Returns the class of a client's colour. There are eight, which repeat. */
export function colour(client) {
  if (!colours.has(client)) colours.set(client, `c${colours.size % 8}`);
  return colours.get(client);
}

/** Shows what the buttons of this kind do. */
export function advise(act) {
  const about = document.querySelector(`[data-about="${act}"]`);
  at("advice").textContent = about.textContent.replace(/\s+/g, " ");
}

/** Sends a request. Returns the error in words, or an empty string. */
export async function send(method, path, body) {
  try {
    const response = await fetch(path, {
      method,
      headers: { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    return response.ok ? "" : (await response.json()).detail;
  } catch {
    return "The server does not answer.";
  }
}
