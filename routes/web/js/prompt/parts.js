/** The parts of a prompt as collapsible blocks, in the order sent to the model, and the parts that were left out. */

import { el, icon } from "../base/dom.js";
import { hasWords } from "../base/i18n.js";

const PREVIEW_CHARS = 200;
const FEW = 3;

/** The text key for a value from the server, or the value itself if it has none. */
export const word = (kind, value) => (hasWords(`${kind}_${value}`) ? `${kind}_${value}` : String(value ?? ""));

/** `total`: the tokens of the whole prompt, of which each part shows its share. */
export function partList(parts, total, handlers) {
  return el("ol", { class: "prompt-parts" }, ...parts.map((part) => el("li", {}, block(part, total, handlers))));
}

/** The parts that were left out; passages of the same kind and reason share a row. */
export function leftOut(parts, handlers) {
  if (!parts.length) return null;
  const rows = groupPassages(parts);
  const passages = parts.some((part) => part.chunk_id);
  return el("details", { class: "uncited", open: rows.length <= FEW },
    el("summary", {}, icon("chevron"), el("span", { i18n: ["promptDropped", { n: parts.length }] })),
    partList(rows, 0, handlers),
    passages && el("button", { class: "text-button", type: "button", i18n: "promptWhichPassages", on: { click: handlers.showRetrieval } }));
}

/** Groups omitted passages, since they have no text and only their count is informative. */
function groupPassages(parts) {
  const rows = new Map();
  for (const [at, part] of parts.entries()) {
    const key = part.chunk_id ? `${part.part} ${part.reason}` : at;
    const row = rows.get(key);
    if (row) Object.assign(row, { count: row.count + 1, tokens: row.tokens + part.tokens });
    else rows.set(key, { ...part, count: 1 });
  }
  return [...rows.values()];
}

function block(part, total, handlers) {
  const state = part.removed ? "removed" : part.kept ? "kept" : "dropped";
  const head = el("span", { class: "part-head" },
    el("span", { class: "part-name", i18n: word("part", part.part) }),
    part.count > 1 && el("span", { class: "part-count", text: `× ${part.count}` }),
    part.images > 0 && el("span", { class: "part-count", i18n: ["promptImages", { n: part.images }] }),
    el("span", { class: "part-role", i18n: word("role", part.role) }), note(part, state));
  const row = [head, share(part, total)];
  const link = part.turn_id && turnLink(part.turn_id, handlers);
  if (!part.text) return el("div", { class: "prompt-part", "data-state": state }, el("div", { class: "part-row" }, ...row), link);
  return el("details", { class: "prompt-part", "data-state": state },
    el("summary", { class: "part-row" }, icon("chevron"), ...row, el("span", { class: "part-preview", text: part.text.slice(0, PREVIEW_CHARS) })),
    el("div", { class: "part-text", text: part.text }), link);
}

/** Why the part is or is not included, if there is something to say. */
function note(part, state) {
  const fate = { removed: "promptErased", dropped: "promptLeftOut" }[state];
  const reason = part.reason && el("span", { i18n: word("reason", part.reason) });
  return el("span", { class: "part-note" }, fate && el("span", { i18n: fate }), reason);
}

/** A link to the turn that the part repeats, if the page shows it. */
function turnLink(turnId, { goTo }) {
  const asked = document.querySelector(`.turn[data-turn="${CSS.escape(turnId)}"] .asked`);
  if (!asked) return el("p", { class: "part-turn faint", i18n: "promptTurnElsewhere" });
  return el("p", { class: "part-turn" },
    el("button", { class: "text-button", type: "button", i18n: "promptToTurn", on: { click: () => goTo(asked) } }));
}

function share({ kept, tokens }, total) {
  const fill = el("span", { class: "score-fill" });
  fill.style.width = kept && total ? `${Math.min(100, Math.round((tokens / total) * 100))}%` : "0";
  return el("span", { class: "score" }, kept && el("span", { class: "score-track" }, fill),
    el("span", { class: "part-tokens", ...(tokens > 0 && { i18n: ["promptTokens", { n: tokens }] }) }));
}

/* The filters of a question, in words. */

/** Takes a request's `filters`; returns null if there are none. */
export function filterLine({ tags = [], document_ids: documents = [], sources = [], since, until } = {}) {
  const limits = [
    tags.length > 0 && el("span", { i18n: ["filterTags", { n: tags.length, tags: tags.join("、") }] }),
    documents.length > 0 && el("span", { i18n: ["filterDocuments", { n: documents.length }] }),
    sources.length > 0 && el("span", { i18n: ["filterSources", { n: sources.length, sources: sources.join("、") }] }),
    since && el("span", { i18n: ["filterSince", { since }] }),
    until && el("span", { i18n: ["filterUntil", { until }] }),
  ].filter(Boolean);
  return limits.length ? el("p", { class: "filter-line" }, el("span", { i18n: "filterOnly" }), ...limits) : null;
}
