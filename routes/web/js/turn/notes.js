/** What a reader should know about how the answer came to be: warnings, and the question as it was searched. */

import { el } from "../base/dom.js";
import { hasWords } from "../base/i18n.js";

// Told by the line above the answer, in the same place after a reload.
const ELSEWHERE = new Set(["answer_cut"]);

export class Notes {
  #seen = new Set();
  element = el("ul", { class: "notes", hidden: true });

  /** A `warning` status. One that this page has no words for is shown in the server's. */
  warn({ code = "", message = "", ...counts }) {
    if (ELSEWHERE.has(code) || this.#seen.has(code)) return;
    this.#seen.add(code);
    this.#add(hasWords(`warn_${code}`) ? [`warn_${code}`, { n: counts.turns ?? "" }] : [message]);
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

  #add(words) {
    if (words[0]) this.#show(el("li", { i18n: words }));
  }

  #show(item, before = null) {
    this.element.insertBefore(item, before);
    this.element.hidden = false;
  }
}
