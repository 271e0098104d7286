/** The views of the turns on the page, in order. Of a long branch, the first ones are loaded when they are scrolled to. */

import { el, setText } from "../base/dom.js";

const NEAR = "1500px 0px 0px";

export class ShownTurns {
  /** The turn before the first one on the page; null if there is none. */
  above = null;
  #views = [];
  #earlier = el("button", { class: "text-button earlier", type: "button", on: { click: () => this.#more() } });
  #watcher = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.#more(), { rootMargin: NEAR });

  /** `onEarlier()` must load the turns before the first one and pass them to `prepend`. */
  constructor(element, onEarlier) {
    Object.assign(this, { element, onEarlier });
    addEventListener("beforeprint", () => this.#views.forEach(({ answer }) => answer.renderAll()));
    addEventListener("afterprint", () => this.#views.forEach(({ answer }) => answer.renderNear()));
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

  /** Called when the page shows the branch from `first` on, if not from an earlier turn; `above` is the turn before it. */
  begin(above, first = this.#views[0]?.turnId) {
    if (first === this.#views[0]?.turnId) this.above = above;
    this.#offer();
  }

  /** Offers to load earlier turns, if there are any. */
  #offer() {
    this.#watcher.disconnect();
    if (!this.above) return this.#earlier.remove();
    setText(this.#earlier, "earlierTurns");
    this.element.prepend(this.#earlier);
    this.#watcher.observe(this.#earlier);
  }

  /** Adds turns before the first one, which stays where it is. */
  prepend(views, above) {
    const first = this.#views[0].element;
    const { top } = first.getBoundingClientRect();
    this.#views.unshift(...views);
    first.before(...views.map(({ element }) => element));
    this.begin(above);
    scrollBy({ top: first.getBoundingClientRect().top - top, behavior: "instant" });
  }

  async #more() {
    if (this.#earlier.disabled) return;
    this.#earlier.disabled = true;
    await this.onEarlier().catch(() => setText(this.#earlier, "loadFailed"));
    this.#earlier.disabled = false;
  }

  clear() {
    this.#cut(0);
    this.begin(null);
    this.element.replaceChildren();
    this.element.style.minHeight = "";
  }

  /** Replaces the turns by an error message, with a retry button if `onRetry` is given. */
  say(words, onRetry) {
    this.clear();
    const retry = onRetry && el("button", { class: "button", type: "button", i18n: "retry", on: { click: onRetry } });
    this.element.append(el("div", { class: "notice" }, el("p", { i18n: words }), retry));
  }

  /** Removes the turn and everything below it. */
  cutFrom(view) {
    this.#cut(this.#views.indexOf(view));
  }

  /**
   * Keeps the elements of the turns that the page shares with the branch `ids` (root first) and removes everything
   * below; other turns between them (for example commands) stay. Returns the ids that are still missing.
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

  /** Whether only commands other than /clear are below the turn, so that the next question would follow it. */
  isLast(view) {
    const at = this.#views.indexOf(view);
    return at >= 0 && this.#views.slice(at + 1).every(({ command }) => command && command !== "clear");
  }

  /** The turn that another version of `view` would follow, as far as the page shows it. */
  parentOf(view) {
    const before = this.#views.slice(0, this.#views.indexOf(view));
    const followed = before.findLast((each) => each.canBeFollowed || (each.command === "clear" && each.status === "completed"));
    return followed && !followed.command ? followed.turnId : null;
  }

  /** Keeps the page tall enough for the current scroll position until `releasePlace()`. */
  holdPlace() {
    const page = document.scrollingElement;
    const below = page.scrollHeight - innerHeight - page.scrollTop;
    this.element.style.minHeight = `${Math.max(0, this.element.offsetHeight - below)}px`;
  }

  releasePlace() {
    this.element.style.minHeight = "";
  }

  #cut(from) {
    for (const view of this.#views.splice(from)) view.element.remove();
  }
}
