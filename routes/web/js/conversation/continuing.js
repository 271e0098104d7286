/** The line at the question box that says that the next question does not go on at the end of its branch. */

import { el, icon } from "../base/dom.js";

const MAX_CHARS = 80;

export class ContinuingNote {
  /** Stands before `composer`. `onDismiss(turnId)` is to show what came after that turn again. */
  constructor(composer, onDismiss) {
    Object.assign(this, { onDismiss, turnId: null });
    this.element = el("div", { class: "continuing", role: "status" });
    composer.before(this.element);
  }

  show({ turnId, question }) {
    if (turnId === this.turnId) return;
    this.turnId = turnId;
    const text = Array.from(question.replace(/\s+/g, " ")).slice(0, MAX_CHARS).join("");
    this.element.replaceChildren(icon("branch"), el("span", { i18n: ["continuing", { text }] }),
      el("button", { class: "quiet", type: "button", label: "continuingStop", on: { click: () => this.onDismiss(turnId) } }, icon("close")));
  }

  hide() {
    this.turnId = null;
    this.element.replaceChildren();
  }
}
