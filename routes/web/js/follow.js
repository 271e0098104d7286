/** Keeps the end of the conversation in view while it grows, unless the reader scrolled up. */

const NEAR_PX = 90;
const SETTLE_MS = 400;

const page = () => document.scrollingElement;
const nearEnd = () => page().scrollHeight - page().scrollTop - innerHeight < NEAR_PX;

export class Follower {
  #following = true;
  #active = false;
  #lastTop = 0;
  #pinnedUntilMs = 0;
  #timer = 0;

  constructor(thread, button) {
    this.button = button;
    new ResizeObserver(() => this.#grown()).observe(thread);
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    addEventListener("wheel", ({ deltaY }) => deltaY < 0 && this.#leave(), { passive: true });
    button.addEventListener("click", () => this.toEnd());
  }

  /** The conversation begins to grow: go along. */
  start() {
    clearTimeout(this.#timer);
    this.#active = true;
    this.toEnd();
  }

  /** What still comes in the next moment (the sources) belongs to it. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#active = false), SETTLE_MS);
  }

  toEnd() {
    this.#following = true;
    this.#pinnedUntilMs = performance.now() + SETTLE_MS; // what comes near the window is rendered only now
    page().scrollTop = page().scrollHeight;
    this.#showButton();
  }

  #grown() {
    const pinned = performance.now() < this.#pinnedUntilMs;
    if ((this.#active || pinned) && this.#following) page().scrollTop = page().scrollHeight;
    this.#showButton();
  }

  #scrolled() {
    const top = page().scrollTop;
    if (nearEnd()) this.#following = true;
    else if (top < this.#lastTop - 2) this.#leave();
    this.#lastTop = top;
    this.#showButton();
  }

  #leave() {
    if (page().scrollHeight > innerHeight + NEAR_PX) this.#following = false;
  }

  #showButton() {
    this.button.hidden = nearEnd();
  }
}
