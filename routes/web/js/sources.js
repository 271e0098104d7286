/** The sources of one answer as cards: cited ones first, each with its key passage. */

import { el, icon } from "./dom.js";

const PAGE_SIZE = 20;

export class SourcesView {
  #cards = new Map();
  #reveal = new Map();

  constructor(citations) {
    const cited = citations.filter((citation) => citation.cited);
    const others = citations.filter((citation) => !citation.cited);
    this.numbers = new Set(citations.map((citation) => citation.index));
    this.element = el("section", { class: "sources", label: "sources" });
    if (!citations.length) return;
    this.element.append(el("h3", { i18n: ["sourcesCount", { n: cited.length || citations.length }] }));
    if (cited.length) this.#list(this.element, cited);
    if (others.length) this.#uncited(others, cited.length === 0);
  }

  /** Shows, opens and focuses the card of source `index`. */
  open(index) {
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

  /** None marked as cited: the model cited nothing it was given, so the list is open and says so. */
  #uncited(citations, noneCited) {
    const key = noneCited ? "found" : "uncited";
    const box = el("details", { class: "uncited", open: noneCited },
      el("summary", {}, icon("chevron"), el("span", { i18n: [key, { n: citations.length }] })));
    this.#list(box, citations);
    this.element.append(box);
  }

  #list(parent, citations) {
    const list = el("ol", { class: "source-list" });
    parent.append(list);
    this.#page(list, citations, 0);
  }

  #page(list, citations, from) {
    const upTo = from + PAGE_SIZE;
    for (const citation of citations.slice(from, upTo)) list.append(el("li", {}, this.#card(citation)));
    const left = citations.length - upTo;
    if (left <= 0) return;
    const next = () => {
      if (!more.isConnected) return;
      more.remove();
      this.#page(list, citations, upTo);
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
    const card = el("details", { class: "source", "data-index": citation.index });
    card.append(summary(citation));
    card.fill = () => card.dataset.filled || fill(card, citation);
    card.addEventListener("toggle", () => card.open && card.fill());
    this.#cards.set(citation.index, card);
    return card;
  }
}

function summary(citation) {
  return el("summary", {},
    el("span", { class: "number", text: citation.index }),
    el("span", { class: "source-head" },
      el("span", { class: "file", text: citation.file_name }),
      el("span", { class: "place" }, ...standing(citation), ...place(citation))),
    score(citation.score),
    el("span", { class: "passage", text: citation.key_passage || citation.text }));
}

/** What became of the document since: an outdated one's text is what it said then, a removed one's is gone. */
function standing({ removed, outdated }) {
  const key = removed ? "sourceRemoved" : outdated ? "sourceOutdated" : "";
  return key ? [el("span", { class: "standing", i18n: [key] })] : [];
}

function place({ heading, page }) {
  return [heading && el("span", { text: heading }), page && el("span", { i18n: ["page", { n: page }] })];
}

function score(value) {
  const percent = Math.round(Math.min(1, Math.max(0, Number(value) || 0)) * 100);
  const fill = el("span", { class: "score-fill" });
  fill.style.width = `${percent}%`;
  return el("span", { class: "score", role: "img", label: ["relevance", { percent }] },
    el("span", { class: "score-track" }, fill), el("span", { class: "score-number", text: `${percent}%` }));
}

/** The whole chunk with its key passage marked, made when the card is first opened. */
function fill(card, citation) {
  const { text, key_passage: passage, reason } = citation;
  card.dataset.filled = "1";
  const body = el("div", { class: "source-text" });
  const at = passage ? passageStart(citation) : -1;
  if (at < 0) body.append(text);
  else body.append(text.slice(0, at), el("mark", { text: passage }), text.slice(at + passage.length));
  card.append(body);
  if (reason) card.append(el("p", { class: "reason", text: reason }));
}

/** Offsets count code points; a string of JavaScript counts some of them twice. */
function passageStart({ text, key_passage: passage, passage_start: start }) {
  const at = start == null ? -1 : Array.from(text).slice(0, start).join("").length;
  return at >= 0 && text.startsWith(passage, at) ? at : text.indexOf(passage);
}
