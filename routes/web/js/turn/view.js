/** One turn on the page: question, progress, thinking, answer, error, sources. */

import { AnswerView } from "../answer/view.js";
import { publish } from "../base/bus.js";
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
import { canBeFollowed, stateOf, TurnState } from "./states.js";
import { ThinkingView } from "./thinking.js";
import { ToolCards } from "./tools.js";

export class TurnView {
  #sources = null;
  #waiting = null; // sources to show once the answer is fully rendered
  #again = false;
  #firstWordMs = 0; // when the first word arrived
  #before = null; // the state and text before the connection was lost
  #sourceBox = el("div", { class: "source-box" });
  #errorBox = el("div", { class: "error-box", role: "alert" });

  /** `handlers`: see TurnActions; `images`: see `askedImages`. */
  constructor(turnId, question, handlers = {}, images = []) {
    Object.assign(this, { turnId, question, images });
    this.command = commandOf(question);
    this.thinking = new ThinkingView();
    this.answer = new AnswerView();
    this.progress = new ProgressLine();
    this.notes = new Notes(turnId);
    this.memories = new UsedMemories();
    this.tools = new ToolCards(turnId);
    this.actions = new TurnActions(this, handlers);
    this.element = el("article", { class: "turn", "data-turn": turnId });
    this.state = new TurnState(this.element);
    this.#lay();
    this.element.addEventListener("click", (event) => this.#click(event));
  }

  static stored(turn, handlers) {
    const view = new TurnView(turn.turn_id, turn.question, handlers, imagesOf(turn));
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

  /** Removes everything but the question, to ask it again. */
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

  /** Handles a STATUS event of a stage or a warning. */
  stage(value) {
    if (value.stage === "warning") return this.notes.warn(value);
    if (value.stage === "tool") return this.#tool(value);
    if (value.stage === "remembering") this.memories.show(value.memories);
    if (value.stage === "rewriting" && value.question) this.notes.rewritten(value.question);
    this.progress.stage(value);
    if (value.stage === "retrying") this.state.set("retrying", this.progress.words);
    else if (this.answer.empty) this.state.set("searching"); // later stages run alongside the answer
  }

  /** A tool call may come after the answer began, which then continues. */
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

  /** The connection is back: restores the previous state. */
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
    this.#firstWordMs ||= performance.now();
    this.thinking.append(text);
    this.state.set("thinking", this.thinking.title.textContent);
  }

  appendAnswer(text) {
    this.#firstWordMs ||= performance.now();
    this.thinking.end();
    this.answer.append(text);
    this.state.set("streaming", this.progress.words);
  }

  /** The sources are shown only when the answer is complete, so that nothing moves while it is read. */
  setSources(citations) {
    this.#sources = new SourcesView(citations);
    this.answer.setValidMarks(this.#sources.numbers);
    this.#waiting = this.#sources;
  }

  /** Takes the fields of the last STATUS event; resolves when everything is shown. */
  async finish({ status, finish_reason, timings_ms, usage }) {
    this.thinking.end();
    this.answer.end();
    if (!this.#sources) this.setSources([]);
    await Promise.all([this.answer.drained, this.thinking.shown]);
    const visibleForMs = this.#firstWordMs && performance.now() - this.#firstWordMs;
    this.element.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: { visibleForMs, status } }));
    if (this.#waiting) this.#placeSources();
    this.#settle({ status, finish_reason, timings_ms, usage });
  }

  /** Takes the argument of `errorCard`. */
  showError(error) {
    this.errorCode = error.code;
    this.#errorBox.replaceChildren(errorCard(error));
  }

  get status() {
    return this.element.dataset.status;
  }

  /** Whether a question may follow this one. */
  get canBeFollowed() {
    return canBeFollowed({ status: this.status, command: this.command, answer: !this.answer.empty });
  }

  /** References to the images, which the server has, for asking again. */
  get keptImages() {
    return this.images.map((_, at) => ({ turnId: this.turnId, number: at + 1 }));
  }

  get sourceCount() {
    return this.#sources?.count ?? 0;
  }

  #placeSources() {
    this.#waiting = null;
    this.#sourceBox.replaceChildren(...(this.answer.empty ? [] : [this.#sources.element])); // no answer, no sources
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
    this.actions.rating.show(); // the rating belonged to the removed answer
    this.#sources = this.#waiting = this.#before = null;
    this.#firstWordMs = 0;
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
    if (passage) return event.preventDefault() ?? publish("open-passage", passage);
    const cite = target.closest(".cite");
    if (cite) return this.#sources?.open(Number(cite.dataset.index));
    const code = target.closest(".copy-code");
    if (code) copyText(code.closest(".code").querySelector("pre").textContent, code);
  }
}

const LONG_CHARS = 900;
const LONG_LINES = 14;

/** A long pasted text scrolls in its own box, so that the answer is on the same screen. */
function askedWords(question, images) {
  const isLong = question.length > LONG_CHARS || question.split("\n").length > LONG_LINES;
  const known = isWorded(question, images) ? isLong && "long" : "offscreen";
  return el("span", { class: known, tabindex: isLong && 0, text: question });
}

/** Small talk and commands are not ranked, and need no note that they have no sources. */
const wasSearched = (timings) => timings?.rerank !== undefined;

/* Notes on how the answer came about: warnings, and the rewritten question. */

// Shown by the progress line instead, in the same place after a reload.
const ELSEWHERE = new Set(["answer_cut"]);

class Notes {
  #shown = new Set();
  element = el("ul", { class: "notes", hidden: true });

  constructor(turnId) {
    this.turnId = turnId;
  }

  /** Handles a `warning` status. One without a text on the page is shown in the server's words. */
  warn({ code = "", message = "", ...counts }) {
    if (ELSEWHERE.has(code) || this.#shown.has(code)) return;
    this.#shown.add(code);
    this.#add(hasWords(`warn_${code}`) ? [`warn_${code}`, { n: counts.turns ?? "" }] : [message]);
    if (code === "summarized") this.#offerSummary();
  }

  /** Always comes first, because a stored turn does not record the order of its notes. */
  rewritten(question) {
    this.#show(el("li", { i18n: ["searchedFor", { question }] }), this.element.firstChild);
  }

  /** Shows the notes of a stored turn. */
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
