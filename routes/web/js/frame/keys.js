/** The page's keyboard shortcuts, in addition to those of the question box. */

import { showDialog } from "../base/dialogs.js";
import { el, icon } from "../base/dom.js";
import { menuIsOpen } from "../base/menu.js";

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const command = mac ? "⌘" : "Ctrl";

/** [keys, text key] for the list of shortcuts. The one for a new conversation is not reserved by any browser. */
const KEYS = [
  [["Enter"], "keySend"],
  [["Shift", "Enter"], "keyNewLine"],
  [["Esc"], "keyStop"],
  [["↑"], "keyEditLast"],
  [["/"], "keyQuestion"],
  [[command, "K"], "keySearch"],
  [mac ? ["⌘", "Shift", "O"] : ["Alt", "N"], "keyNewChat"],
  [["F2"], "keyRename"],
  [["?"], "keyHelp"],
];

const inText = ({ target }) => target.closest?.("input, textarea, select, [contenteditable]") !== null;
const isNewChat = ({ key, altKey, ctrlKey, metaKey, shiftKey }) =>
  mac ? metaKey && shiftKey && !altKey && key.toLowerCase() === "o" : altKey && !ctrlKey && !metaKey && !shiftKey && key.toLowerCase() === "n";
const isSearch = ({ key, altKey, ctrlKey, metaKey, shiftKey }) =>
  (mac ? metaKey && !ctrlKey : ctrlKey && !metaKey) && !altKey && !shiftKey && key.toLowerCase() === "k";

/** `handlers`: {newChat, search, question, help}. Shortcuts are disabled while a dialog or a menu is open. */
export function setUpShortcuts(handlers) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229 || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]") || menuIsOpen()) return;
    const act = actOf(event);
    if (!act) return;
    event.preventDefault();
    handlers[act]();
  });
}

function actOf(event) {
  if (isSearch(event)) return "search";
  if (isNewChat(event)) return "newChat";
  if (inText(event) || event.ctrlKey || event.metaKey || event.altKey) return null;
  return { "/": "question", "?": "help" }[event.key] ?? null;
}

/** Shows the list of shortcuts. */
export function showKeys() {
  const rows = KEYS.flatMap(([keys, i18n]) => [el("dt", { i18n }), el("dd", {}, ...keys.map((key) => el("kbd", { text: key })))]);
  const head = el("div", { class: "panel-head" }, el("h2", { i18n: "keys" }),
    el("button", { class: "quiet", value: "", label: "close" }, icon("close")));
  return showDialog([head, el("dl", { class: "keys" }, ...rows)], "small-dialog keys-dialog");
}
