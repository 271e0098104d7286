/** One turn on the page: question, progress, thinking, answer, error, sources. */

import { AnswerView } from "../answer/view.js";
import { tell } from "../base/bus.js";
import { copyText } from "../base/clipboard.js";
import { el } from "../base/dom.js";
import { hasWords } from "../base/i18n.js";
import { passageAt } from "../base/passage-link.js";
import { UsedMemories } from "../memory/used.js";
import { showSummary } from "../prompt/dialog.js";
import { SourcesView } from "../sources/cards.js";
import { TurnActions } from "./actions.js";
import { commandOf } from "./commands.js";
import { errorCard } from "./error-card.js";
import { ProgressLine } from "./progress.js";
import { askedImages, hasWords as isWorded, imagesOf } from "./images.js";
import { leadsOn, stateOf, TurnState } from "./states.js";
import { ThinkingView } from "./thinking.js";
import { ToolCards } from "./tools.js";

export class TurnView {
  #sources = null;
  #waiting = null; // sources that stand below an answer which is still being rendered
  #again = false;
  #saidSinceMs = 0; // when the first word came
  #before = null; // the state and words that a lost connection interrupted
  #sourceBox = el("div", { class: "source-box" });
  #errorBox = el("div", { class: "error-box", role: "alert" });

  /** `acts`: as TurnActions takes them; `images` as `askedImages` does. */
  constructor(turnId, question, acts = {}, images = []) {
    Object.assign(this, { turnId, question, images });
    this.command = commandOf(question);
    this.thinking = new ThinkingView();
    this.answer = new AnswerView();
    this.progress = new ProgressLine();
    this.notes = new Notes(turnId);
    this.memories = new UsedMemories();
    this.tools = new ToolCards(turnId);
    this.actions = new TurnActions(this, acts);
    this.element = el("article", { class: "turn", "data-turn": turnId });
    this.state = new TurnState(this.element);
    this.#lay();
    this.element.addEventListener("click", (event) => this.#click(event));
  }

  static stored(turn, acts) {
    const view = new TurnView(turn.turn_id, turn.question, acts, imagesOf(turn));
    view.showStored(turn);
    return view;
  }

  showStored(turn) {
    this.#clear();
    this.command = turn.command ?? "";
    this.notes.showStored(turn);
    this.memories.showStored(turn.turn_id, turn.memory_ids);
    this.tools.showStored(turn.tool_calls);
    this.thinking.showStored(turn.thinking ?? "", turn.timings_ms?.thinking);
    this.answer.append(turn.answer ?? "");
    this.answer.end();
    this.#sources = new SourcesView(turn.sources ?? []);
    this.#placeSources();
    this.actions.rating.show(turn.feedback);
    this.#settle(turn, turn.timestamp);
  }

  /** Back to the bare question, to be asked again. */
  reset() {
    this.#again = true;
    this.#clear();
  }

  start() {
    this.element.dataset.status = "running";
    this.#errorBox.replaceChildren();
    const key = this.#again ? "stageRetrying" : "stageSending";
    this.progress.start(key);
    this.state.set(this.#again ? "retrying" : "sending", this.progress.words);
    this.actions.refresh();
  }

  /** A STATUS event of a stage or a warning. */
  stage(value) {
    if (value.stage === "warning") return this.notes.warn(value);
    if (value.stage === "tool") return this.#tool(value);
    if (value.stage === "remembering") this.memories.show(value.memories);
    if (value.stage === "rewriting" && value.question) this.notes.rewritten(value.question);
    this.progress.stage(value);
    if (value.stage === "retrying") this.state.set("retrying", this.progress.words);
    else if (this.answer.empty) this.state.set("searching"); // later ones go on beside the answer
  }

  /** It may come after the answer began, which goes on then. */
  #tool(value) {
    this.tools.show(value);
    this.progress.stage(value);
    if (!this.tools.isWaiting && this.state.now !== "approving") return;
    this.progress.say(this.tools.isWaiting ? "stage_approving" : "stage_tool");
    this.state.set(this.tools.isWaiting ? "approving" : "streaming", this.progress.words);
  }

  reconnecting(n, of) {
    this.#before ??= { state: this.state.now, words: this.progress.key };
    this.progress.say("reconnecting", { n, of });
    this.state.set("reconnecting", this.progress.words);
  }

  /** The connection is back: what was going on goes on. */
  reconnected() {
    if (!this.#before) return;
    const { state, words } = this.#before;
    this.#before = null;
    this.progress.say(words);
    this.state.set(state);
  }

  stopping() {
    this.progress.say("stopping");
  }

  appendThinking(text) {
    this.#saidSinceMs ||= performance.now();
    this.thinking.append(text);
    this.state.set("thinking", this.thinking.title.textContent);
  }

  appendAnswer(text) {
    this.#saidSinceMs ||= performance.now();
    this.thinking.end();
    this.answer.append(text);
    this.state.set("streaming", this.progress.words);
  }

  /** They are shown when the answer is all there, below it: nothing that is being read moves. */
  setSources(citations) {
    this.#sources = new SourcesView(citations);
    this.answer.setValidMarks(this.#sources.numbers);
    this.#waiting = this.#sources;
  }

  /** As the last STATUS event says; resolves when all is shown. */
  async finish({ status, finish_reason, timings_ms, usage }) {
    this.thinking.end();
    this.answer.end();
    if (!this.#sources) this.setSources([]);
    await Promise.all([this.answer.drained, this.thinking.shown]);
    const saidForMs = this.#saidSinceMs && performance.now() - this.#saidSinceMs;
    this.element.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: { saidForMs, status } }));
    if (this.#waiting) this.#placeSources();
    this.#settle({ status, finish_reason, timings_ms, usage });
  }

  /** As `errorCard` takes it. */
  showError(error) {
    this.#errorBox.replaceChildren(errorCard(error));
  }

  get status() {
    return this.element.dataset.status;
  }

  /** Whether a question may follow this one. */
  get leadsOn() {
    return leadsOn({ status: this.status, command: this.command, answer: !this.answer.empty });
  }

  /** To be asked with again: the server has them. */
  get keptImages() {
    return this.images.map((_, at) => ({ turnId: this.turnId, number: at + 1 }));
  }

  get sourceCount() {
    return this.#sources?.numbers.size ?? 0;
  }

  #placeSources() {
    this.#waiting = null;
    this.#sourceBox.replaceChildren(...(this.answer.empty ? [] : [this.#sources.element])); // of no word there is no source
    this.answer.setValidMarks(this.#sources.numbers);
  }

  #settle({ status, finish_reason: reason, timings_ms: timings, usage }, at) {
    this.#again = false;
    this.element.dataset.status = status;
    this.tools.settle();
    this.thinking.took(timings?.thinking);
    this.progress.settle({ status, reason, broken: !this.answer.empty, at, timings, usage });
    if (status === "completed" && !this.sourceCount && wasSearched(timings)) this.#saySourceless();
    this.state.set(stateOf(status), this.progress.words);
    this.actions.refresh();
  }

  #saySourceless() {
    this.#sourceBox.append(el("p", { class: "no-sources", i18n: "noSources" }));
  }

  #clear() {
    this.thinking = new ThinkingView();
    this.answer = new AnswerView();
    this.notes = new Notes(this.turnId);
    this.memories = new UsedMemories();
    this.tools = new ToolCards(this.turnId);
    this.#sourceBox.replaceChildren();
    this.#errorBox.replaceChildren();
    this.actions.rating.show(); // it was of the answer that goes
    this.#sources = this.#waiting = this.#before = null;
    this.#saidSinceMs = 0;
    this.#lay();
  }

  #lay() {
    this.element.replaceChildren(
      el("h2", { class: "asked" }, askedImages(this.images), askedWords(this.question, this.images)),
      el("div", { class: "meta" }, this.progress.element, this.actions.element),
      this.progress.folded, this.notes.element,
      this.thinking.element, this.tools.element, this.answer.element, this.#errorBox, this.memories.element, this.#sourceBox);
  }

  #click(event) {
    const { target } = event;
    const passage = passageAt(target.closest("a")?.getAttribute("href"));
    if (passage) return event.preventDefault() ?? tell("open-passage", passage);
    const cite = target.closest(".cite");
    if (cite) return this.#sources?.open(Number(cite.dataset.index));
    const code = target.closest(".copy-code");
    if (code) copyText(code.closest(".code").querySelector("pre").textContent, code);
  }
}

const LONG_CHARS = 900;
const LONG_LINES = 14;

/** A pasted text scrolls in a box of its own, so that its answer stands below it on the same screen. */
function askedWords(question, images) {
  const isLong = question.length > LONG_CHARS || question.split("\n").length > LONG_LINES;
  const known = isWorded(question, images) ? isLong && "long" : "offscreen";
  return el("span", { class: known, tabindex: isLong && 0, text: question });
}

/** Small talk is not ranked, nor is a command: that they have no sources goes without saying. */
const wasSearched = (timings) => timings?.rerank !== undefined;

/* What a reader should know about how the answer came to be: warnings, and the question as it was searched. */

// Told by the line above the answer, in the same place after a reload.
const ELSEWHERE = new Set(["answer_cut"]);

class Notes {
  #shown = new Set();
  element = el("ul", { class: "notes", hidden: true });

  constructor(turnId) {
    this.turnId = turnId;
  }

  /** A `warning` status. One that this page has no words for is shown in the server's. */
  warn({ code = "", message = "", ...counts }) {
    if (ELSEWHERE.has(code) || this.#shown.has(code)) return;
    this.#shown.add(code);
    this.#add(hasWords(`warn_${code}`) ? [`warn_${code}`, { n: counts.turns ?? "" }] : [message]);
    if (code === "summarized") this.#offerSummary();
  }

  /** It stands first, whatever was told before it: a stored turn does not say in which order they came. */
  rewritten(question) {
    this.#show(el("li", { i18n: ["searchedFor", { question }] }), this.element.firstChild);
  }

  /** What a stored turn kept of them. */
  showStored({ rewritten_question: question, warnings = [] }) {
    if (question) this.rewritten(question);
    for (const warning of warnings) this.warn(warning);
  }

  #offerSummary() {
    this.element.lastChild.append(" ", el("button", { class: "text-button", type: "button", i18n: "summaryOpen", on: { click: () => showSummary(this.turnId) } }));
  }

  #add(words) {
    if (words[0]) this.#show(el("li", {}, el("span", { i18n: words })));
  }

  #show(item, before = null) {
    this.element.insertBefore(item, before);
    this.element.hidden = false;
  }
}
