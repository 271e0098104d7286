/** A search made now for a turn's question: every candidate stage by stage, and why a document was not found. */

import { ApiError } from "../api/http.js";
import { search } from "../api/search.js";
import { readTurn } from "../api/turns.js";
import { el } from "../base/dom.js";
import { causeOf } from "../turn/error-words.js";
import { filterLine } from "./filter-line.js";
import { candidateTable } from "./retrieval-table.js";
import { WhyNot } from "./why-not.js";

const TOP_N = 10; // the server's own default

export class RetrievalTab {
  #state = el("p", { class: "faint", role: "status" });
  #found = el("div", { class: "retrieval-found" });

  constructor(turnId) {
    this.turnId = turnId;
    this.element = el("div", { class: "retrieval-body" },
      el("p", { class: "prompt-state retrieval-now", i18n: "retrievalNow" }), this.#state, this.#found);
  }

  async load() {
    this.#state.replaceChildren(el("span", { i18n: "retrievalSearching" }));
    try {
      const body = bodyOf(await readTurn(this.turnId));
      const report = await search(body);
      this.#state.replaceChildren(...told(report));
      this.#found.replaceChildren(...shown(report, body));
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error) {
    const message = error instanceof ApiError ? causeOf(error) : "retrievalFailed";
    const again = el("button", { class: "text-button", type: "button", i18n: "retrievalAgain", on: { click: () => this.load() } });
    this.#state.replaceChildren(el("span", { i18n: message }), again);
  }
}

/** As the turn had it. A turn that is of old does not say how many passages it wanted at most. */
function bodyOf({ user_query: question, session_id, parent_turn_id, model_id, filters, request }) {
  return {
    question,
    session_id,
    parent_turn_id: parent_turn_id ?? null,
    ...(model_id ? { model_id } : {}),
    ...(filters ? { filters } : {}),
    top_n: request?.rerank_top_n ?? TOP_N,
  };
}

function told({ candidates, reranker, fell_back: fellBack }) {
  const kept = candidates.filter((candidate) => candidate.kept).length;
  return [
    el("span", { i18n: ["retrievalCount", { n: candidates.length, kept }] }),
    el("span", { i18n: ["retrievalReranker", { reranker }] }),
    fellBack && el("span", { class: "standing", i18n: "retrievalFellBack" }),
  ].filter(Boolean);
}

function shown({ candidates }, body) {
  const rows = candidates.length ? candidateTable(candidates) : [el("p", { class: "faint", i18n: "retrievalNone" })];
  return [filterLine(body.filters), ...rows, new WhyNot(body).element].filter(Boolean);
}
