/** The list of keys. */

import { showDialog } from "../base/dialogs.js";
import { el, icon } from "../base/dom.js";
import { KEYS } from "./shortcuts.js";

export function showKeys() {
  const rows = KEYS.flatMap(([keys, i18n]) => [el("dt", { i18n }), el("dd", {}, ...keys.map((key) => el("kbd", { text: key })))]);
  const head = el("div", { class: "panel-head" }, el("h2", { i18n: "keys" }),
    el("button", { class: "quiet", value: "", label: "close" }, icon("close")));
  return showDialog([head, el("dl", { class: "keys" }, ...rows)], "small-dialog keys-dialog");
}
