/** How the model's window was filled: each kind of part, what is kept for the answer, what is left. */

import { el } from "../base/dom.js";
import { word } from "./prompt-parts.js";

const KNOWN = ["persona", "system", "memory", "summary", "relevant_history", "recent_history", "knowledge", "question"];

/** `kept` are the parts that were sent, in their order. Without a known window the prompt is the whole. */
export function windowBar(kept, { window = 0, answer_tokens: answer = 0, prompt_tokens: used = 0 }) {
  const shares = [...byKind(kept)];
  if (window > 0) shares.push(["answer", answer], ["free", Math.max(0, window - used - answer)]);
  const whole = Math.max(window, shares.reduce((sum, [, tokens]) => sum + tokens, 0));
  const told = shares.filter(([, tokens]) => tokens > 0);
  if (!told.length) return null;
  return el("div", { class: "window" },
    el("div", { class: "window-bar", "aria-hidden": "true" }, ...told.map((share) => piece(share, whole))),
    el("ul", { class: "window-legend", label: "windowLabel" }, ...told.map((share) => entry(share, whole))));
}

function byKind(parts) {
  const sums = new Map();
  for (const { part, tokens } of parts) sums.set(part, (sums.get(part) ?? 0) + (Number(tokens) || 0));
  return sums;
}

const kindOf = (name) => (KNOWN.includes(name) || name === "answer" || name === "free" ? name : "other");

function piece([name, tokens], whole) {
  const node = el("span", { "data-part": kindOf(name) });
  node.style.width = `${(tokens / whole) * 100}%`;
  return node;
}

function entry([name, tokens], whole) {
  const percent = (tokens / whole) * 100;
  const share = percent < 1 ? "< 1" : Math.round(percent);
  return el("li", {}, el("span", { class: "swatch", "data-part": kindOf(name) }),
    el("span", { i18n: word("part", name) }), el("span", { class: "legend-share", i18n: ["windowShare", { n: tokens, share }] }));
}
