/** An opened source: the chunk with its key passage, why it was chosen, and what can be done with it. */

import { el, setText } from "../base/dom.js";
import { tell } from "../base/bus.js";
import { Context } from "./context.js";
import { markedText, settleScroll } from "./passage.js";

const VERSION_CHARS = 8;

/** `settle` is to be called once the body is on the page. */
export function cardBody(citation, deck) {
  const { text, removed } = citation;
  const words = el("div", { class: "source-text" }, ...(text || citation.key_passage ? markedText(citation) : []));
  if (removed && !text) words.append(el("p", { i18n: "sourceErased" }));
  const element = el("div", { class: "source-body" },
    words, reason(citation), facts(citation), sameDocument(citation, deck), actions(citation, deck, words));
  return { element, settle: () => settleScroll(words) };
}

function reason({ reason: said }) {
  return said && el("p", { class: "reason" }, el("span", { class: "reason-head", i18n: "sourceReason" }), el("span", { text: said }));
}

function facts({ outdated, removed, text, version }) {
  const told = [
    removed && text && el("span", { i18n: "sourceRemovedSince" }),
    outdated && el("span", { i18n: "sourceOutdatedSince" }),
    version && el("span", { i18n: ["sourceVersion", { version: String(version).slice(0, VERSION_CHARS) }] }),
  ].filter(Boolean);
  return told.length > 0 && el("p", { class: "source-facts" }, ...told);
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
  const there = !removed && document_id;
  const row = el("div", { class: "source-actions" },
    there && chunk_id && contextButton(citation, words),
    text && action("sourceQuote", () => tell("quote", { file_name, text })),
    there && text && action("sourcePersona", () => tell("persona", { file_name, text, document_id, chunk_id })),
    there && action("sourceOnly", () => tell("filter", { document_ids: [document_id], names: [file_name] })),
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
