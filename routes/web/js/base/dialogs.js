/** Small modal dialogs: confirmation and access key. */

import { el, setText } from "./dom.js";

let count = 0;

/**
 * Shows `content` in a modal dialog labelled by its first heading or paragraph; resolves to its return value,
 * "" when dismissed. The focus returns to where it was.
 */
export function showDialog(content, className) {
  const dialog = el("dialog", { class: className }, el("form", { method: "dialog" }, ...content));
  const name = dialog.querySelector("h2, p");
  name.id = `dialog-name-${++count}`;
  dialog.setAttribute("aria-labelledby", name.id);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

const choice = (value, key, className) => el("button", { class: className, value, i18n: key });
const cancel = () => el("button", { class: "button", type: "button", i18n: "cancel",
  on: { click: ({ target }) => target.closest("dialog").close("") } });

export async function confirmRemoval(key, vars) {
  const buttons = el("div", { class: "dialog-actions" }, cancel(), choice("yes", "remove", "button danger"));
  return (await showDialog([el("p", { i18n: [key, vars] }), buttons], "small-dialog")) === "yes";
}

/** Resolves to the key or null. */
export async function askForKey(refusedKey) {
  const field = el("input", { type: "password", autocomplete: "off", required: true, label: "keyLabel" });
  const intro = el("p");
  setText(intro, refusedKey ? "keyRefused" : "keyIntro");
  const buttons = el("div", { class: "dialog-actions" }, cancel(), choice("ok", "confirm", "button primary"));
  const answer = await showDialog([el("h2", { i18n: "keyTitle" }), intro, field, buttons], "small-dialog");
  return answer === "ok" ? field.value.trim() || null : null;
}
