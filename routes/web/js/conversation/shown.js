/** The turns on the page, in order, as views. */

import { el } from "../base/dom.js";

export class ShownTurns {
  #views = [];

  constructor(element) {
    this.element = element;
  }

  get views() {
    return this.#views;
  }

  get ids() {
    return new Set(this.#views.map((view) => view.turnId));
  }

  get lastQuestion() {
    return this.#views.findLast((view) => !view.command);
  }

  find(turnId) {
    return this.#views.find((view) => view.turnId === turnId);
  }

  has(view) {
    return this.#views.includes(view);
  }

  append(view) {
    this.#views.push(view);
    this.element.append(view.element);
  }

  clear() {
    this.#cut(0);
    this.element.replaceChildren();
    this.element.style.minHeight = "";
  }

  /** In place of the turns: what went wrong, and how to try again, where that may help. */
  say(words, onRetry) {
    this.clear();
    const retry = onRetry && el("button", { class: "button", type: "button", i18n: "retry", on: { click: onRetry } });
    this.element.append(el("div", { class: "notice" }, el("p", { i18n: words }), retry));
  }

  /** Takes the turn, and all below it, off the page. */
  cutFrom(view) {
    this.#cut(this.#views.indexOf(view));
  }

  /**
   * Keeps what the page shows of the branch `ids` (root first), as the elements they are, and takes all below
   * off; what was asked between them (a command, say) stays. Returns the ids that are still to be shown.
   */
  keep(ids) {
    if (!this.#views.length) this.clear();
    let [matched, end] = [0, 0];
    for (const [at, view] of this.#views.entries()) {
      if (view.turnId !== ids[matched]) continue;
      matched += 1;
      end = at + 1;
    }
    this.#cut(end);
    return new Set(ids.slice(matched));
  }

  /** Whether nothing below the turn is what the next question follows, or begins after. */
  isLast(view) {
    const at = this.#views.indexOf(view);
    return at >= 0 && this.#views.slice(at + 1).every(({ command }) => command && command !== "clear");
  }

  /** The question that a turn asked in the place of `view` would follow, as far as the page shows it. */
  parentOf(view) {
    const before = this.#views.slice(0, this.#views.indexOf(view));
    const followed = before.findLast((each) => each.leadsOn || (each.command === "clear" && each.status === "completed"));
    return followed && !followed.command ? followed.turnId : null;
  }

  /** Until it is let go, the page does not become too short for what the window shows now. */
  holdPlace() {
    const page = document.scrollingElement;
    const below = page.scrollHeight - innerHeight - page.scrollTop;
    this.element.style.minHeight = `${Math.max(0, this.element.offsetHeight - below)}px`;
  }

  letGo() {
    this.element.style.minHeight = "";
  }

  #cut(from) {
    for (const view of this.#views.splice(from)) view.element.remove();
  }
}
