/** The folding panel of a model's thinking. It is plain text, and is not there when there is none. */

import { el, icon, setText } from "./dom.js";

export class ThinkingView {
  #pieces = [];
  #shown = 0;
  #startedMs = 0;
  #scheduled = false;

  constructor() {
    this.title = el("span", { i18n: "thoughts" });
    this.body = el("div", { class: "thinking-text" });
    this.element = el("details", { class: "thinking", hidden: true },
      el("summary", {}, icon("chevron"), this.title), this.body);
  }

  append(text) {
    if (!this.#startedMs) {
      this.#startedMs = performance.now();
      this.element.hidden = false;
      this.element.classList.add("running");
      setText(this.title, "thinkingNow");
    }
    this.#pieces.push(text);
    if (!this.#scheduled) requestAnimationFrame(() => this.#flush());
    this.#scheduled = true;
  }

  /** Thinking is over: the answer began, or the turn ended. */
  end() {
    if (!this.element.classList.contains("running")) return;
    this.element.classList.remove("running");
    const s = Math.max(1, Math.round((performance.now() - this.#startedMs) / 1000));
    setText(this.title, "thoughtFor", { s });
  }

  showStored(text) {
    this.element.hidden = !text;
    this.body.textContent = text;
  }

  #flush() {
    this.#scheduled = false;
    this.body.append(this.#pieces.slice(this.#shown).join(""));
    this.#shown = this.#pieces.length;
    this.body.scrollTop = this.body.scrollHeight;
  }
}
