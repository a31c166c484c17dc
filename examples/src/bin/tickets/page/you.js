// The buyer of this tab. Each tab is a buyer of its own.

const at = (id) => document.getElementById(id);
const NAMES = ["Ada", "Bela", "Carl", "Dora", "Emil", "Fay", "Gus", "Hedy", "Ivo", "June"];

export const me = () => sessionStorage.getItem("name") ?? "";

/** Returns the headers of a request by a buyer. */
export const headers = (name) => ({ buyer: encodeURIComponent(name) });

function madeUpName() {
  return `${NAMES[Math.floor(Math.random() * NAMES.length)]} ${Math.floor(10 + Math.random() * 90)}`;
}

function askForName() {
  at("name").value = me() || madeUpName();
  at("who").showModal();
  at("name").select();
}

/** Asks for the buyer's name unless it is known, and calls back when the name changes. */
export function introduce(renamed) {
  at("introduction").addEventListener("submit", (submission) => {
    submission.preventDefault();
    const name = at("name").value.trim();
    if (name === "") return;
    sessionStorage.setItem("name", name);
    at("who").close();
    at("me").textContent = name;
    renamed();
  });
  at("who").addEventListener("cancel", (escape) => me() === "" && escape.preventDefault());
  at("rename").addEventListener("click", askForName);
  at("me").textContent = me();
  if (me() === "") askForName();
}
