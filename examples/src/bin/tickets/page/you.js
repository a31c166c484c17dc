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
  at("name").value = me();
  at("who").showModal();
  at("name").select();
}

/** Gives the buyer a name. The button beside it asks for another one, and then calls back. */
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
  at("rename").addEventListener("click", askForName);
  if (me() === "") sessionStorage.setItem("name", madeUpName());
  at("me").textContent = me();
}
