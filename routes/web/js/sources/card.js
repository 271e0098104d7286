/** One source as a folding card: its head always, its body when it is first opened. */

import { tell } from "../base/bus.js";
import { el, setText } from "../base/dom.js";
import { Context } from "./context.js";
import { atAGlance, markedText, settleScroll } from "./passage.js";

/** `deck` is the SourcesView that the card belongs to. */
export function sourceCard(citation, deck) {
  const card = el("details", { class: "source", "data-index": citation.index });
  card.append(summary(citation));
  card.firstChild.addEventListener("click", (event) => turn(event, card));
  card.fill = () => {
    if (card.dataset.filled) return;
    card.dataset.filled = "1";
    const body = cardBody(citation, deck);
    card.append(body.element);
    body.settle();
  };
  card.addEventListener("toggle", () => card.open && card.fill()); // a search in the page opens it too
  return card;
}

/** Its body comes with the opening, not a frame after it. */
function turn(event, card) {
  event.preventDefault();
  card.open = !card.open;
  if (card.open) card.fill();
}

/** Whether nothing is left of it but its number: the document was erased, and its words with it. */
export const isErased = ({ removed, text, file_name: name }) => Boolean(removed) && !text && !name;

function summary(citation) {
  const erased = isErased(citation);
  return el("summary", {},
    el("span", { class: "number", text: citation.index }),
    el("span", { class: "source-head" }, fileName(citation),
      el("span", { class: "place" }, ...(erased ? [] : standing(citation)), ...placeOf(citation))),
    erased || citation.score == null ? el("span", { class: "score" }) : score(citation.score),
    erased ? el("span", { class: "passage", i18n: "sourceErased" })
      : el("span", { class: "passage", text: atAGlance(citation.key_passage || citation.text) }));
}

export function fileName(citation) {
  if (isErased(citation)) return el("span", { class: "file standing", i18n: "sourceRemoved" });
  return el("span", { class: "file", text: citation.file_name });
}

/** What became of the document since: an outdated one's text is what it said then, a removed one's is gone. */
function standing({ removed, outdated }) {
  const key = removed ? "sourceRemoved" : outdated ? "sourceOutdated" : "";
  return key ? [el("span", { class: "standing", i18n: key })] : [];
}

/** Heading, page and date, as far as they are told. */
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

/* An opened source: the chunk with its key passage, why it was chosen, and what can be done with it. */

const VERSION_CHARS = 8;

/** `settle` is to be called once the body is on the page. */
function cardBody(citation, deck) {
  const { text, removed } = citation;
  const words = el("div", { class: "source-text" }, ...(text || citation.key_passage ? markedText(citation) : []));
  if (removed && !text) words.append(el("p", { i18n: "sourceErased" }));
  const element = el("div", { class: "source-body" },
    words, reason(citation), facts(citation), sameDocument(citation, deck), actions(citation, deck, words));
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

/** The other cards of this document: one document, several passages. */
function sameDocument(citation, deck) {
  const others = deck.sameDocument(citation);
  if (!others.length) return null;
  const go = (index) => el("button", { class: "number", type: "button", text: index, label: ["cite", { n: index }],
    on: { click: () => deck.open(index) } });
  return el("p", { class: "same-document" }, el("span", { i18n: "sameDocument" }), ...others.map(go));
}

/** What needs the document is offered only while it is there. */
function actions(citation, deck, words) {
  const { document_id, chunk_id, file_name, text, removed, cited } = citation;
  const exists = !removed && document_id;
  const row = el("div", { class: "source-actions" },
    exists && chunk_id && contextButton(citation, words),
    text && action("sourceQuote", () => tell("quote", { file_name, text })),
    exists && text && action("sourcePersona", () => tell("persona", { file_name, text, document_id, chunk_id })),
    exists && action("sourceOnly", () => tell("filter", { document_ids: [document_id], names: [file_name] })),
    cited && action("backToAnswer", () => deck.back(citation.index), "back"));
  return row.childElementCount > 0 && row;
}

const action = (key, click, className = "") =>
  el("button", { class: `text-button ${className}`.trim(), type: "button", i18n: key, on: { click } });

/** Puts the surroundings in the place of the chunk alone, and back. */
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
