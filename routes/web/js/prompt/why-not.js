/** "Why not my document?": how far a document got in the search, and which stage dropped it. */

import { ApiError } from "../api/http.js";
import { allDocuments, search } from "../api/documents.js";
import { el, icon } from "../base/dom.js";
import { markedText } from "../sources/passage.js";
import { causeOf } from "../base/i18n.js";
import { word } from "./parts.js";
import { percentText, scoreText, STAGES } from "./stages.js";

export class WhyNot {
  #select = el("select", { label: "whyNotChoose" });
  #ask = el("button", { class: "button", type: "button", i18n: "whyNotAsk", disabled: true, on: { click: () => this.#explain() } });
  #answer = el("div", { class: "why-answer", role: "status" });

  /** `body`: the search request. */
  constructor(body) {
    this.body = body;
    this.element = el("details", { class: "why-not uncited" },
      el("summary", {}, icon("chevron"), el("span", { i18n: "whyNotTitle" })),
      el("div", { class: "why-row" }, this.#select, this.#ask), this.#answer);
    this.element.addEventListener("toggle", () => this.element.open && !this.#select.length && this.#load());
    this.#select.addEventListener("change", () => this.#answer.replaceChildren());
  }

  async #load() {
    try {
      const documents = await allDocuments();
      this.#select.replaceChildren(...options(documents));
      this.#ask.disabled = !documents.length;
      this.#say(documents.length ? null : "whyNotNone");
    } catch {
      this.#say("whyNotUnread");
    }
  }

  async #explain() {
    const documentId = this.#select.value;
    this.#say("retrievalSearching");
    try {
      const { document } = await search({ ...this.body, document_id: documentId });
      if (documentId === this.#select.value) this.#answer.replaceChildren(...explained(document));
    } catch (error) {
      this.#say(error instanceof ApiError ? causeOf(error) : "retrievalFailed");
    }
  }

  #say(key) {
    this.#answer.replaceChildren(...(key ? [el("p", { class: "faint", i18n: key })] : []));
  }
}

/** Sorted by name; documents with the same name get something to distinguish them. */
function options(documents) {
  const times = new Map();
  for (const { file_name: name } of documents) times.set(name, (times.get(name) ?? 0) + 1);
  const named = documents.map((each) => {
    const name = each.file_name;
    const text = times.get(name) > 1 ? `${name} (${each.external_id || each.source || each.created_at || ""})` : name;
    return { value: each.document_id, text };
  });
  named.sort((one, other) => one.text.localeCompare(other.text));
  return named.map(({ value, text }) => el("option", { value, text }));
}

/** The message comes from the server: what to try, in the question's language. */
function explained({ stage, message, error, chunks }) {
  return [
    el("p", { class: "why-stage" }, el("span", { class: "why-head", i18n: "whyNotStage" }), el("span", { i18n: word("stage", stage) })),
    el("p", { class: "why-message", text: message }),
    error && el("p", { class: "standing", text: error }),
    chunks.length > 0 && el("p", { class: "faint", i18n: ["whyNotChunks", { n: chunks.length }] }),
    el("ol", { class: "why-chunks" }, ...chunks.map(chunkItem)),
  ].filter(Boolean);
}

function chunkItem(chunk) {
  return el("li", {},
    el("p", { class: "why-place" }, chunk.heading && el("span", { text: chunk.heading }),
      chunk.page != null && el("span", { i18n: ["page", { n: chunk.page }] }), el("span", { i18n: word("stage", chunk.stage) })),
    el("div", { class: "chunk-text", tabindex: "0" }, ...markedText(chunk)),
    el("dl", { class: "why-lists" }, ...STAGES.flatMap((stage) => standing(stage, chunk[stage])),
      ...alone(chunk.alone_probability)));
}

/** Rank and score at a stage; if it was not kept, also the score of the last one kept, which it had to beat. */
function standing(stage, place) {
  const score = scoreText(stage, place);
  const last = place?.last_score != null && !place.kept ? scoreText(stage, { score: place.last_score }) : "";
  const ranked = place?.rank != null;
  const missing = stage === "dense" || stage === "sparse" ? "rankNone" : "placeNone";
  const key = !place ? missing : last ? (ranked ? "placeBehind" : "placeFarBehind") : ranked ? "placeRank" : "placeFar";
  return fact(`column_${stage}`, [key, { rank: place?.rank, score, last }]);
}

const alone = (chance) => (chance == null ? [] : fact("whyNotAlone", ["whyNotChance", { percent: percentText(chance) }]));

const fact = (name, value) => [el("dt", { i18n: name }), el("dd", { i18n: value })];
