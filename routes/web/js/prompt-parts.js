/** The parts of a prompt as folding blocks, in the order the model got them. */

import { el, icon } from "./dom.js";
import { hasWords } from "./i18n.js";

const PREVIEW_CHARS = 200;

/** A word of ours for a value of the server's, or that value itself. */
const word = (kind, value) => (hasWords(`${kind}_${value}`) ? `${kind}_${value}` : value);

/** `total` is the tokens of the whole prompt, of which each part shows its share. */
export function partList(parts, total) {
  return el("ol", { class: "prompt-parts" }, ...parts.map((part) => el("li", {}, block(part, total))));
}

function block(part, total) {
  const state = part.removed ? "removed" : part.kept ? "kept" : "dropped";
  const head = el("span", { class: "part-head" },
    el("span", { class: "part-name", i18n: word("part", part.part) }),
    el("span", { class: "part-role", i18n: word("role", part.role) }), note(part, state));
  const row = [head, share(part, total)];
  if (!part.text) return el("div", { class: "prompt-part", "data-state": state }, el("div", { class: "part-row" }, ...row));
  return el("details", { class: "prompt-part", "data-state": state },
    el("summary", { class: "part-row" }, icon("chevron"), ...row, el("span", { class: "part-preview", text: part.text.slice(0, PREVIEW_CHARS) })),
    el("div", { class: "part-text", text: part.text }));
}

/** Why it is there or why not, where something is to be said of that. */
function note(part, state) {
  const said = { removed: "promptErased", dropped: "promptLeftOut" }[state];
  const reason = part.reason && el("span", { i18n: word("reason", part.reason) });
  return el("span", { class: "part-note" }, said && el("span", { i18n: said }), reason);
}

function share({ kept, tokens }, total) {
  const fill = el("span", { class: "score-fill" });
  fill.style.width = kept && total ? `${Math.min(100, Math.round((tokens / total) * 100))}%` : "0";
  return el("span", { class: "score" }, el("span", { class: "score-track" }, fill),
    el("span", { class: "part-tokens", ...(tokens > 0 && { i18n: ["promptTokens", { n: tokens }] }) }));
}
