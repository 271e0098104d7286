/** Editing a conversation's title in place, and the pin next to it. */

import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";

/**
 * Replaces `shown` by a text field. Enter and blur save, Esc cancels. `save(title)` resolves to whether the title was
 * saved; until then the field stays with its text. The focus returns to `home`.
 */
export function editTitle(shown, { title, save, home }) {
  if (shown.hidden) return;
  const input = el("input", { class: "rename", value: title, maxlength: 200, label: "renameTo", autocomplete: "off" });
  const editing = { title, save, input, saving: false, ended: false };
  editing.end = () => end(editing, shown, home);
  input.addEventListener("blur", () => finish(editing));
  input.addEventListener("keydown", (event) => key(event, editing));
  shown.hidden = true;
  shown.after(input);
  input.focus();
  input.select();
}

function key(event, editing) {
  event.stopPropagation(); // Esc, for example, would stop an answer
  if (event.isComposing || event.keyCode === 229) return;
  if (event.key === "Enter") finish(editing);
  if (event.key === "Escape") editing.end();
}

async function finish(editing) {
  const title = editing.input.value.trim();
  if (editing.ended || editing.saving) return;
  if (!title || title === editing.title) return editing.end();
  editing.saving = true;
  const saved = await editing.save(title);
  editing.saving = false;
  if (saved) editing.end();
}

function end(editing, shown, home) {
  if (editing.ended) return;
  const hadFocus = document.activeElement === editing.input;
  editing.ended = true;
  shown.hidden = false;
  if (hadFocus) home.focus({ preventScroll: true });
  editing.input.remove();
}

/* The pin of a conversation that is exempt from clean-up. */

export const pinMark = () => el("span", { class: "pin", hidden: true }, icon("pin"), el("span", { class: "offscreen" }));

export function setPin(mark, held) {
  mark.hidden = !held;
  mark.title = t("held");
  mark.lastElementChild.textContent = t("heldShort");
}
