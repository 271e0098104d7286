/** The sources of an answer as cards: cited ones first, each with its key passage. */

import { readDocument } from "../api/documents.js";
import { el, icon } from "../base/dom.js";
import { originOf, sourceCard } from "./card.js";

const PAGE_SIZE = 20;
const UNMARKED_SIZE = 3; // shown first if the answer cites none: what it used is probably among the best
const views = new WeakMap();

/** The source that a citation in an answer refers to; undefined while unknown. */
export const citationOf = (mark) =>
  views.get(mark.closest(".turn")?.querySelector(".sources"))?.citation(Number(mark.dataset.index));

export class SourcesView {
  #citations = new Map();
  #cards = new Map();
  #reveal = new Map();
  #origins = new Map();
  #openedFrom = null;

  constructor(citations) {
    for (const citation of citations) this.#citations.set(citation.index, citation);
    const cited = citations.filter((citation) => citation.cited);
    const others = citations.filter((citation) => !citation.cited);
    this.numbers = new Set(this.#citations.keys());
    this.element = el("section", { class: "sources", label: "sources", on: { keydown: (event) => this.#key(event) } });
    views.set(this.element, this);
    this.count = cited.length || citations.length;
    if (!this.count) return;
    this.element.append(el("h3", { i18n: ["sourcesCount", { n: this.count }] }));
    if (cited.length) this.#list(this.element, cited);
    if (others.length) this.#uncited(others, cited.length === 0);
  }

  citation(index) {
    return this.#citations.get(index);
  }

  /** The numbers of the other sources from the same document. */
  sameDocument({ document_id: documentId, index }) {
    if (!documentId) return [];
    return [...this.#citations.values()]
      .filter((other) => other.document_id === documentId && other.index !== index)
      .map((other) => other.index);
  }

  /** Reveals, opens and focuses the card of source `index`, and remembers the focused citation for `back`. */
  open(index) {
    const mark = document.activeElement?.closest(".cite");
    if (mark) this.#openedFrom = mark;
    this.#reveal.get(index)?.();
    const card = this.#cards.get(index);
    if (!card) return;
    for (let box = card.parentElement?.closest("details"); box; box = box.parentElement?.closest("details")) {
      box.open = true;
    }
    card.open = true;
    card.fill();
    card.querySelector("summary").focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
    card.classList.remove("called");
    requestAnimationFrame(() => card.classList.add("called"));
  }

  /** Returns to the citation that led to the card, or to the first one that refers to it. */
  back(index) {
    const followed = this.#openedFrom?.isConnected ? this.#openedFrom : null;
    const mark = followed ?? this.element.closest(".turn")?.querySelector(`.cite[data-index="${index}"]`);
    this.#openedFrom = null;
    mark?.focus({ preventScroll: true });
    mark?.scrollIntoView({ block: "nearest" });
  }

  /** Esc returns from a card reached through a citation; otherwise it keeps its usual meaning. */
  #key(event) {
    const card = event.target.closest(".source");
    if (event.key !== "Escape" || !card || !this.#openedFrom) return;
    event.stopPropagation();
    this.back(Number(card.dataset.index));
  }

  /** If the model cited none of its sources, the list is open, starts with the best few, and says so. */
  #uncited(citations, noneCited) {
    const key = noneCited ? "retrieved" : "uncited";
    const box = el("details", { class: "uncited", open: noneCited },
      el("summary", {}, icon("chevron"), el("span", { i18n: [key, { n: citations.length }] })));
    this.#list(box, citations, noneCited ? UNMARKED_SIZE : PAGE_SIZE);
    this.element.append(box);
  }

  #list(parent, citations, size = PAGE_SIZE) {
    const list = el("ol", { class: "source-list" });
    parent.append(list);
    this.#page(list, citations, 0, size);
  }

  #page(list, citations, from, size = PAGE_SIZE) {
    const upTo = from + size;
    for (const citation of citations.slice(from, upTo)) list.append(el("li", {}, this.#card(citation)));
    const left = citations.length - upTo;
    if (left <= 0) return;
    let shown = false;
    const next = () => {
      if (shown) return;
      shown = true;
      const focused = document.activeElement === more;
      more.remove();
      this.#page(list, citations, upTo);
      if (focused) list.children[upTo].querySelector("summary").focus({ preventScroll: true });
    };
    const n = Math.min(left, PAGE_SIZE);
    const more = el("button", { class: "text-button", type: "button", i18n: ["showMore", { n }], on: { click: next } });
    list.after(more);
    for (const citation of citations.slice(upTo)) this.#reveal.set(citation.index, () => this.#revealUpTo(citation.index, next));
  }

  #revealUpTo(index, next) {
    next();
    if (!this.#cards.has(index)) this.#reveal.get(index)?.();
  }

  #card(citation) {
    const card = sourceCard(citation, this);
    this.#cards.set(citation.index, card);
    if (this.#hasNamesake(citation)) this.#showOrigin(citation.document_id, card);
    return card;
  }

  #hasNamesake({ document_id: id, file_name: name }) {
    return id && name && [...this.#citations.values()].some((other) => other.file_name === name && other.document_id !== id);
  }

  /** A document that was deleted or cannot be read has only its name. */
  async #showOrigin(documentId, card) {
    if (!this.#origins.has(documentId)) this.#origins.set(documentId, readDocument(documentId).catch(() => null));
    const document = await this.#origins.get(documentId);
    if (document) card.querySelector(".place").prepend(originOf(document));
  }
}
