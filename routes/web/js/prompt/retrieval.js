/** Repeats the retrieval for a turn's question: every candidate by stage, and why a document was not found. */

import { search } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { readTurn } from "../api/turns.js";
import { el, icon } from "../base/dom.js";
import { causeOf } from "../base/i18n.js";
import { placeOf } from "../sources/card.js";
import { markedText, settleScroll } from "../sources/passage.js";
import { filterLine } from "./parts.js";
import { outcome, rankNode, scoreText, STAGES } from "./stages.js";
import { WhyNot } from "./why-not.js";

const TOP_N = 10; // the server's own default

export class RetrievalTab {
  #state = el("p", { class: "faint", role: "status" });
  #results = el("div", { class: "retrieval-found" });

  constructor(turnId) {
    this.turnId = turnId;
    this.element = el("div", { class: "retrieval-body" },
      el("p", { class: "prompt-state retrieval-now", i18n: "retrievalNow" }), this.#state, this.#results);
  }

  async load() {
    this.#state.replaceChildren(el("span", { i18n: "retrievalSearching" }));
    try {
      const body = bodyOf(await readTurn(this.turnId));
      const report = await search(body);
      this.#state.replaceChildren(...summary(report));
      this.#results.replaceChildren(...shown(report, body));
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

/** The search request for the turn. Old turns did not store their maximum number of passages. */
function bodyOf({ question, session_id, parent_turn_id, model_id, filters, request }) {
  return {
    question,
    session_id,
    parent_turn_id: parent_turn_id ?? null,
    ...(model_id ? { model_id } : {}),
    ...(filters ? { filters } : {}),
    ...(request?.date ? { date: request.date } : {}),
    top_n: request?.rerank_top_n ?? TOP_N,
  };
}

function summary({ candidates, reranker, fell_back: fellBack, sample_left_out: withoutSample }) {
  const kept = candidates.filter((candidate) => candidate.kept).length;
  return [
    el("span", { i18n: ["retrievalCount", { n: candidates.length, kept }] }),
    el("span", { i18n: reranker === "calibrated" ? "retrievalBuiltIn" : ["retrievalReranker", { reranker }] }),
    fellBack && el("span", { class: "standing", i18n: "retrievalFellBack" }),
    withoutSample && el("span", { i18n: "retrievalSample" }),
  ].filter(Boolean);
}

function shown({ candidates }, body) {
  const rows = candidates.length ? candidateTable(candidates) : [el("p", { class: "faint", i18n: "retrievalNone" })];
  return [filterLine(body.filters), ...rows, new WhyNot(body).element].filter(Boolean);
}

/* The candidates of a search as a table: one row each, which expands to the chunk. On a phone it is laid out as a list. */

const KINDS = { all: () => true, kept: (one) => one.kept, dropped: (one) => !one.kept };
const COLUMNS = ["document", ...STAGES, "tokens", "outcome"];

/** Returns the elements to insert: the row filter and the table, in the server's order. */
function candidateTable(candidates) {
  const rows = candidates.map((candidate, at) => ({ candidate, ...row(candidate, at + 1) }));
  const table = el("table", { class: "candidates", role: "table" },
    el("caption", { i18n: "retrievalCaption" }),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...COLUMNS.map(heading))),
    el("tbody", { role: "rowgroup" }, ...rows.flatMap(({ element, opened }) => [element, opened])));
  return [choice(candidates, (keep) => {
    for (const { candidate, element, opened } of rows) {
      element.hidden = !keep(candidate);
      opened.hidden = element.hidden || element.dataset.open !== "true";
    }
  }), table];
}

// Explicit ARIA roles, which a table laid out as a list would lose.
const heading = (name) => el("th", { role: "columnheader", scope: "col", i18n: `column_${name}` });

function choice(candidates, onChoose) {
  const buttons = Object.entries(KINDS).map(([name, keep]) => {
    const n = candidates.filter(keep).length;
    return el("button", { class: "switch", type: "button", "aria-pressed": String(name === "all"), i18n: [`show_${name}`, { n }],
      on: { click: ({ currentTarget }) => choose(currentTarget, keep) } });
  });
  const choose = (button, keep) => {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    onChoose(keep);
  };
  return el("div", { class: "row-choice", role: "group", label: "rowChoice" }, ...buttons);
}

function row(candidate, number) {
  const id = `candidate-${number}`;
  const opened = el("tr", { class: "chunk-row", role: "row", id, hidden: true });
  const open = el("button", { class: "row-open", type: "button", "aria-expanded": "false", "aria-controls": id,
    on: { click: () => toggle(element, open, opened, candidate) } },
    icon("chevron"), el("span", { class: "file", text: candidate.file_name }), el("span", { class: "place" }, ...placeOf(candidate)));
  const element = el("tr", { class: "candidate", role: "row", "data-kept": String(Boolean(candidate.kept)) },
    el("th", { role: "rowheader", scope: "row" }, open),
    ...STAGES.map((stage) => cell(stage, rankNode(candidate[stage]), el("span", { class: "points", text: scoreText(stage, candidate[stage]) }))),
    cell("tokens", el("span", { text: candidate.budget?.tokens ?? "" })),
    cell("outcome", outcome(candidate)));
  return { element, opened };
}

/** Each cell repeats the column's name, for the list layout on phones. */
const cell = (name, ...content) => el("td", { role: "cell", "data-column": name },
  el("span", { class: "cell-name", "aria-hidden": "true", i18n: `column_${name}` }), ...content);

function toggle(element, button, opened, candidate) {
  const open = element.dataset.open !== "true";
  element.dataset.open = String(open);
  button.setAttribute("aria-expanded", String(open));
  opened.hidden = !open;
  if (!open || opened.childElementCount) return;
  const text = el("div", { class: "chunk-text" }, ...markedText(candidate));
  opened.append(el("td", { role: "cell", colspan: COLUMNS.length }, text, tagLine(candidate)));
  settleScroll(text);
}

function tagLine({ tags = [], source }) {
  const origin = [...tags, source].filter(Boolean).join(" · ");
  return origin && el("p", { class: "faint", text: origin });
}
