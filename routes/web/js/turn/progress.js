/** The line under a question: the current stage while the turn runs, the durations when it has ended. */

import { el, icon, setMoment, setText } from "../base/dom.js";
import { hasWords, seconds } from "../base/i18n.js";

let count = 0;

export class ProgressLine {
  #startedMs = 0;
  #startedAt = "";
  #stage = null;
  #done = el("span", { class: "passed" });
  #now = el("span", { class: "now" });
  #ended = el("span", { class: "ended" });
  #took = el("span", { class: "took-time" });
  #clock = el("time", {});
  #list = el("ol", { class: "stages", hidden: true });
  #button = el("button", { class: "took", type: "button", "aria-expanded": "false", hidden: true,
    on: { click: () => this.#fold(this.#list.hidden) } }, icon("chevron"), this.#took);

  constructor() {
    this.#list.id = `stages-${++count}`;
    this.#button.setAttribute("aria-controls", this.#list.id);
    this.element = el("div", { class: "progress" }, this.#done, this.#now, this.#ended, this.#button, this.#clock);
    /** The collapsible list of stages, placed below the line. */
    this.folded = this.#list;
  }

  start(key = "stageSending") {
    this.#startedMs = performance.now();
    this.#startedAt = new Date().toISOString();
    this.#stage = null;
    this.#done.replaceChildren();
    this.#fold(false);
    for (const node of [this.#button, this.#ended, this.#clock]) node.hidden = true;
    this.say(key);
  }

  /** Shows the current activity. */
  say(key, vars) {
    this.#now.hidden = false;
    setText(this.#now, key, vars);
  }

  /** The text shown; `key` is its text key, to show it again. */
  get words() {
    return this.#now.hidden ? this.#ended.textContent : this.#now.textContent;
  }

  get key() {
    return this.#now.dataset.i18n;
  }

  /** Starts a stage, ending the previous one; a stage without a text on the page is shown in the server's words. */
  stage({ stage, message }) {
    if (stage === this.#stage?.name) return;
    this.#endStage();
    this.#stage = { name: stage, startedMs: performance.now() };
    const words = `stage_${stage}`;
    if (hasWords(words) || message) this.say(hasWords(words) ? words : message);
  }

  #endStage() {
    const { name, startedMs } = this.#stage ?? {};
    if (!name || !hasWords(`short_${name}`)) return;
    const s = seconds(performance.now() - startedMs);
    this.#done.append(el("span", { i18n: [`short_${name}`, { s }] }));
  }

  /** The turn has ended; `broken`: after part of its answer arrived. `timings` from the server; `at`: the time of a stored turn. */
  settle({ status, reason, broken, at, usage, timings = {} }) {
    this.#done.replaceChildren();
    this.#say(this.#now, "");
    this.#say(this.#ended, endWords(status, reason, broken));
    const ms = wholeMs(timings) ?? (this.#startedMs ? performance.now() - this.#startedMs : null);
    this.#button.hidden = ms === null;
    if (ms !== null) setText(this.#took, "doneIn", { s: seconds(ms) });
    this.#clock.hidden = !at;
    if (at) setMoment(this.#clock, at);
    this.#showStages(timings, usage, at);
  }

  #say(node, key) {
    node.hidden = !key;
    if (key) return setText(node, key);
    node.textContent = "";
    delete node.dataset.i18n;
    delete node.dataset.i18nVars;
  }

  /** Includes the time of asking, for phones, where the line has no room for it. */
  #showStages(timings, usage, at) {
    const rows = stagesOf(timings).map(({ stage, ms }) => row(`took_${stage}`, ms));
    if (timings.thinking) rows.push(row("took_thinking", timings.thinking));
    if (usage?.completion_tokens) rows.push(tokens(usage));
    this.#list.replaceChildren(...rows, askedAt(at ?? this.#startedAt));
    this.#button.disabled = rows.length === 0;
  }

  #fold(open) {
    this.#list.hidden = !open;
    this.#button.setAttribute("aria-expanded", String(open));
  }
}

const row = (key, ms) => el("li", {}, el("span", { i18n: key }), el("span", { class: "ms", i18n: ["secondsShort", { s: seconds(ms) }] }));

function askedAt(at) {
  const time = el("time", { class: "ms" });
  if (at) setMoment(time, at);
  return el("li", { class: "asked-at" }, el("span", { i18n: "askedAt" }), time);
}

/** Token usage; marked as estimated if the model's server did not report it. */
function tokens({ prompt_tokens: read, completion_tokens: written, estimated }) {
  return el("li", {}, el("span", { i18n: "tokens" }),
    el("span", { class: "ms", i18n: [estimated ? "tokensEstimated" : "tokensCounted", { read, written }] }));
}

/** The text key for an incomplete answer; "" for a complete one. */
function endWords(status, reason, broken) {
  if (status === "failed" && broken) return "brokeOff";
  if (hasWords(`status_${status}`)) return `status_${status}`;
  return reason === "length" ? "cutAtLength" : "";
}

/* How long the stages of a turn took, from the server's lap times. */

// The lap names; others are not shown.
const STAGES = ["retrieve", "rewrite", "rerank", "first_token", "generate"];

/** How long the answer took, null if unknown. Excludes storing it, which is reported to live readers only. */
const wholeMs = (timings) => timings.generate ?? timings.total ?? null;

/**
 * `timings`: milliseconds from the start of the turn to the end of each stage, as sent by the server.
 * Returns [{stage, ms}] with the duration of each stage, in order.
 */
function stagesOf(timings) {
  const laps = STAGES.filter((stage) => Number.isFinite(timings[stage]))
    .map((stage) => ({ stage, at: timings[stage] }))
    .sort((one, other) => one.at - other.at);
  return laps.map(({ stage, at }, number) => ({ stage, ms: at - (laps[number - 1]?.at ?? 0) }));
}
