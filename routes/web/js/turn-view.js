/** One turn on the page: question, progress, thinking, answer, error, sources. */

import { AnswerView } from "./answer.js";
import { copyText } from "./clipboard.js";
import { commandOf } from "./commands.js";
import { el, icon, setText } from "./dom.js";
import { formatTime, hasWords } from "./i18n.js";
import { showPrompt } from "./prompt-dialog.js";
import { SourcesView } from "./sources.js";
import { ThinkingView } from "./thinking.js";

export class TurnView {
  #startedMs = performance.now();
  #sources = null;
  #sourceBox = el("div", { class: "source-box" });
  #errorBox = el("div", { class: "error-box", role: "alert" });
  #progress = el("p", { class: "progress" });
  #copy = el("button", { class: "quiet copy-answer", type: "button", label: "copyAnswer", hidden: true }, icon("copy"));
  #prompt = el("button", { class: "quiet show-prompt", type: "button", i18n: "prompt", label: "promptOpen", hidden: true });

  constructor(turnId, question) {
    this.turnId = turnId;
    this.question = question;
    this.command = commandOf(question);
    this.thinking = new ThinkingView();
    this.answer = new AnswerView();
    this.element = el("article", { class: "turn", "data-turn": turnId });
    this.#lay();
    this.element.addEventListener("click", (event) => this.#click(event));
  }

  static stored(turn) {
    const view = new TurnView(turn.turn_id, turn.user_query);
    view.showStored(turn);
    return view;
  }

  showStored(turn) {
    this.reset();
    this.command = turn.command ?? "";
    this.thinking.showStored(turn.thinking ?? "");
    this.answer.append(turn.assistant_response ?? "");
    this.answer.end();
    this.setSources(turn.sources ?? []);
    this.#settle(turn.status, ["doneAt", { time: formatTime(turn.timestamp) }], turn.finish_reason);
  }

  /** Back to the bare question, as before the first event. */
  reset() {
    this.thinking = new ThinkingView();
    this.answer = new AnswerView();
    this.#sourceBox.replaceChildren();
    this.#errorBox.replaceChildren();
    this.#sources = null;
    this.#copy.hidden = true;
    this.#prompt.hidden = true;
    this.#startedMs = performance.now();
    this.#lay();
  }

  start() {
    this.element.dataset.status = "running";
    this.#errorBox.replaceChildren();
    this.setStage("stageSending");
  }

  setStage(key, vars) {
    setText(this.#progress, key, vars);
  }

  /** A stage this page has no words for is shown in the server's. */
  setServerStage(stage, message) {
    if (hasWords(`stage_${stage}`)) this.setStage(`stage_${stage}`);
    else if (message) this.setStage(message);
  }

  appendThinking(text) {
    this.thinking.append(text);
  }

  appendAnswer(text) {
    this.thinking.end();
    this.answer.append(text);
  }

  setSources(citations) {
    this.#sources = new SourcesView(citations);
    this.#sourceBox.replaceChildren(this.#sources.element);
    this.answer.setValidMarks(this.#sources.numbers);
  }

  finish(status, reason) {
    this.thinking.end();
    this.answer.end();
    if (!this.#sources) this.setSources([]);
    const s = ((performance.now() - this.#startedMs) / 1000).toFixed(1);
    this.#settle(status, ["doneIn", { s }], reason);
  }

  /** `message` is a person's sentence or a key of ours; `onRetry` is null when trying again cannot help. */
  showError(message, requestId, onRetry) {
    const retry = onRetry && el("button", { class: "button", type: "button", on: { click: onRetry } },
      icon("retry"), el("span", { i18n: "retry" }));
    const reference = requestId && el("span", { class: "request-id", i18n: ["requestId", { id: requestId }] });
    this.#errorBox.replaceChildren(el("div", { class: "error-card" },
      el("p", { i18n: message }), el("div", { class: "error-actions" }, retry, reference)));
  }

  get status() {
    return this.element.dataset.status;
  }

  get sourceCount() {
    return this.#sources?.numbers.size ?? 0;
  }

  #settle(status, done, reason) {
    this.element.dataset.status = status;
    const whole = reason === "length" ? ["cutAtLength"] : done;
    const [key, vars] = hasWords(`status_${status}`) ? [`status_${status}`] : whole;
    setText(this.#progress, key, vars);
    this.#copy.hidden = this.answer.empty;
    this.#prompt.hidden = this.command !== ""; // a command is answered without a model
  }

  #lay() {
    this.element.replaceChildren(
      el("h2", { class: "asked", text: this.question }),
      el("div", { class: "meta" }, this.#progress, this.#copy, this.#prompt),
      this.thinking.element, this.answer.element, this.#errorBox, this.#sourceBox);
  }

  #click({ target }) {
    const cite = target.closest(".cite");
    if (cite) return this.#sources?.open(Number(cite.dataset.index));
    const code = target.closest(".copy-code");
    if (code) return copyText(code.closest(".code").querySelector("pre").textContent, code);
    const copy = target.closest(".copy-answer");
    if (copy) return copyText(this.answer.text, copy);
    const prompt = target.closest(".show-prompt");
    if (prompt) showPrompt(this.turnId, prompt);
  }
}
