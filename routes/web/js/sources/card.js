/** A source as a collapsible card, whose body is created when it is first opened. */

import { publish } from "../base/bus.js";
import { el, setText } from "../base/dom.js";
import { formatBytes, formatTime } from "../base/i18n.js";
import { Context } from "./context.js";
import { markedText, plainPreview, settleScroll } from "./passage.js";

/** `sources`: the SourcesView to which the card belongs. */
export function sourceCard(citation, sources) {
  const card = el("details", { class: "source", "data-index": citation.index });
  card.append(summary(citation));
  card.firstChild.addEventListener("click", (event) => toggle(event, card));
  card.fill = () => {
    if (card.dataset.filled) return;
    card.dataset.filled = "1";
    const body = cardBody(citation, sources);
    card.append(body.element);
    body.settle();
  };
  card.addEventListener("toggle", () => card.open && card.fill()); // the browser's find-in-page opens it, too
  return card;
}

/** Fills the body together with opening, not a frame later. */
function toggle(event, card) {
  event.preventDefault();
  card.open = !card.open;
  if (card.open) card.fill();
}

/** Whether the document was erased together with its cited text, so that only the number is left. */
export const isErased = ({ removed, text, file_name: name }) => Boolean(removed) && !text && !name;

function summary(citation) {
  const erased = isErased(citation);
  return el("summary", {},
    el("span", { class: "number", text: citation.index }),
    el("span", { class: "source-head" }, fileName(citation),
      el("span", { class: "place" }, ...(erased ? [] : standing(citation)), ...placeOf(citation))),
    erased || citation.score == null ? el("span", { class: "score" }) : score(citation.score),
    erased ? el("span", { class: "passage", i18n: "sourceErased" })
      : el("span", { class: "passage", text: plainPreview(citation.key_passage || citation.text) }));
}

export function fileName(citation) {
  if (isErased(citation)) return el("span", { class: "file standing", i18n: "sourceRemoved" });
  return el("span", { class: "file", text: citation.file_name });
}

/** Distinguishes a document from others of its name: its folder, or when it was added and its size. */
export function originOf({ file_name: name, external_id: path, created_at: moment, size_bytes: bytes }) {
  if (path?.endsWith(`/${name}`)) return el("span", { text: path.slice(0, -name.length - 1) });
  const added = el("span", { i18n: ["docAddedAt", { time: formatTime(moment) }] });
  return el("span", {}, added, `, ${formatBytes(bytes)}`);
}

/** A label for a document that was changed or removed after the answer. */
function standing({ removed, outdated }) {
  const key = removed ? "sourceRemoved" : outdated ? "sourceOutdated" : "";
  return key ? [el("span", { class: "standing", i18n: key })] : [];
}

/** Heading, page and date, as far as known. */
export const placeOf = ({ heading, page, date }) => [
  heading && el("span", { text: heading }),
  page != null && el("span", { i18n: ["page", { n: page }] }),
  date && el("time", { datetime: date, text: date }),
];

function score(value) {
  const percent = Math.round(Math.min(1, Math.max(0, Number(value) || 0)) * 100);
  const fill = el("span", { class: "score-fill" });
  fill.style.width = `${percent}%`;
  return el("span", { class: "score", role: "img", label: ["relevance", { percent }] },
    el("span", { class: "score-track" }, fill), el("span", { class: "score-number", text: `${percent}%` }));
}

/* An opened source: the chunk with its key passage, why it was selected, and its actions. */

const VERSION_CHARS = 8;

/** `settle` must be called once the body is on the page. */
function cardBody(citation, sources) {
  const { text, removed } = citation;
  const words = el("div", { class: "source-text" }, ...(text || citation.key_passage ? markedText(citation) : []));
  if (removed && !text) words.append(el("p", { i18n: "sourceErased" }));
  const element = el("div", { class: "source-body" },
    words, reason(citation), facts(citation), sameDocument(citation, sources), actions(citation, sources, words));
  return { element, settle: () => settleScroll(words) };
}

function reason({ reason: words }) {
  return words && el("p", { class: "reason" }, el("span", { class: "reason-head", i18n: "sourceReason" }), el("span", { text: words }));
}

function facts({ outdated, removed, text, version }) {
  const parts = [
    removed && text && el("span", { i18n: "sourceRemovedSince" }),
    outdated && el("span", { i18n: "sourceOutdatedSince" }),
    version && el("span", { i18n: ["sourceVersion", { version: String(version).slice(0, VERSION_CHARS) }] }),
  ].filter(Boolean);
  return parts.length > 0 && el("p", { class: "source-facts" }, ...parts);
}

/** Links to the other cards of the same document. */
function sameDocument(citation, sources) {
  const others = sources.sameDocument(citation);
  if (!others.length) return null;
  const go = (index) => el("button", { class: "number", type: "button", text: index, label: ["cite", { n: index }],
    on: { click: () => sources.open(index) } });
  return el("p", { class: "same-document" }, el("span", { i18n: "sameDocument" }), ...others.map(go));
}

/** Actions that need the document are offered only while it exists. */
function actions(citation, sources, words) {
  const { document_id, chunk_id, file_name, text, removed, cited } = citation;
  const exists = !removed && document_id;
  const row = el("div", { class: "source-actions" },
    exists && chunk_id && contextButton(citation, words),
    text && action("sourceQuote", () => publish("quote", { file_name, text })),
    exists && text && action("sourcePersona", () => publish("persona", { file_name, text, document_id, chunk_id })),
    exists && action("sourceOnly", () => publish("filter", { document_ids: [document_id], names: [file_name] })),
    cited && action("backToAnswer", () => sources.back(citation.index), "back"));
  return row.childElementCount > 0 && row;
}

const action = (key, click, className = "") =>
  el("button", { class: `text-button ${className}`.trim(), type: "button", i18n: key, on: { click } });

/** Toggles between the chunk alone and the chunk with its surroundings. */
function contextButton(citation, words) {
  const context = new Context(citation);
  const button = action("contextShow", () => {
    const showing = !context.element.isConnected;
    button.setAttribute("aria-expanded", String(showing));
    setText(button, showing ? "contextHide" : "contextShow");
    words.hidden = showing;
    if (!showing) return context.element.remove();
    words.after(context.element);
    context.show();
  });
  button.setAttribute("aria-expanded", "false");
  return button;
}
