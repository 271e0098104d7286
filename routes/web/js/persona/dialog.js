/** The dialog for writing a persona, or for reviewing a passage before it becomes one. */

import { ApiError } from "../api/http.js";
import { el, setText } from "../base/dom.js";
import { countChars } from "../base/insert.js";

const MAX_NAME_CHARS = 200;

/**
 * `start` {name, text}: the initial values. `source`: the file that the text is from, or "". `replaces`: the first
 * words of the persona to be replaced. `save({name, text})` may throw an error, which is shown here without losing
 * the input. Resolves to null once saved, otherwise to the input.
 */
export function writePersona({ start, source, replaces, maxChars, save }) {
  const name = el("input", { class: "persona-name", value: start.name, maxlength: MAX_NAME_CHARS, autocomplete: "off", id: "persona-name" });
  const text = el("textarea", { class: "persona-text", id: "persona-text", rows: 8 });
  text.value = start.text;
  const count = el("p", { class: "hint persona-count", role: "status" });
  const fault = el("p", { class: "persona-fault", role: "alert" });
  const set = el("button", { class: "button primary", type: "submit", i18n: "personaSet" });
  const form = el("form", { method: "dialog" },
    el("h2", { i18n: source ? "personaFromTitle" : "personaTitle" }),
    el("p", { class: "faint", i18n: "personaIntro" }),
    source && el("p", { class: "persona-warning", i18n: ["personaWarning", { source }] }),
    replaces && el("p", { class: "faint", i18n: ["personaReplaces", { replaces }] }),
    el("label", { for: "persona-text", i18n: "personaText" }), text, count,
    el("label", { for: "persona-name", i18n: "personaName" }), name, fault,
    el("div", { class: "dialog-actions" }, cancel(), set));
  text.addEventListener("input", () => showCount(text, maxChars, count, set));
  showCount(text, maxChars, count, set);
  return shown(form, { set, fault, save, typed: () => ({ name: name.value.trim(), text: text.value.trim() }) });
}

function shown(form, { set, fault, save, typed }) {
  const dialog = el("dialog", { class: "small-dialog persona-dialog", label: "personaTitle" }, form);
  document.body.append(dialog);
  dialog.showModal();
  form.querySelector("textarea").focus();
  return new Promise((resolve) => {
    let saved = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      saved = await attempt(() => save(typed()), set, fault);
      if (saved) dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(saved ? null : typed());
    });
  });
}

async function attempt(act, button, fault) {
  button.disabled = true;
  try {
    await act();
    return true;
  } catch (error) {
    setText(fault, ...wordsFor(error));
    return false;
  } finally {
    button.disabled = false;
  }
}

function showCount(text, max, count, set) {
  const n = countChars(text.value.trim());
  set.disabled = n === 0 || n > max;
  count.classList.toggle("warning", n > max);
  setText(count, n > max ? "tooLong" : "personaCount", { n, max, over: n - max });
}

/** The arguments of `setText` that say why a persona could not be set or cleared. */
export function wordsFor(error) {
  if (!(error instanceof ApiError)) return ["personaUnreachable"];
  if (error.status === 404) return ["personaNoSession"];
  return error.status < 500 ? ["personaRefused", { why: error.message }] : ["personaUnreachable"];
}

const cancel = () => el("button", { class: "button", type: "button", i18n: "cancel",
  on: { click: ({ target }) => target.closest("dialog").close() } });
