/** Keeps the end of the conversation in view while it grows, unless the user scrolled up or selects text. */

const NEAR_PX = 90;
const SETTLE_MS = 400;
const READ_MS = 1_000; // nobody can have read an answer that arrived faster
const UP_KEYS = new Set(["PageUp", "ArrowUp", "Home"]);

const page = () => document.scrollingElement;
const nearEnd = () => page().scrollHeight - page().scrollTop - innerHeight < NEAR_PX;
const writes = (node) => node instanceof Element && node.matches("input, textarea, select, [contenteditable]");

export class Follower {
  #following = true;
  #active = false;
  #lastTop = 0;
  #lastHeight = 0;
  #touchY = null;
  #pinnedUntilMs = 0;
  #timer = 0;

  constructor(thread, button) {
    Object.assign(this, { thread, button });
    new ResizeObserver(() => this.#grown()).observe(thread);
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#listenToReader();
    // The sources added below a finished answer must not scroll the text being read away.
    thread.addEventListener("answered", ({ target, detail }) => {
      this.#grown(); // includes the last piece of the answer, which is rendered in this frame
      if (detail.status === "failed") return; // the error card is still to come
      this.#active = false;
      if (detail.visibleForMs < READ_MS) this.#toBeginning(target);
    });
    button.addEventListener("click", () => this.toEnd());
  }

  /** The conversation starts to grow: follow it. */
  start() {
    clearTimeout(this.#timer);
    this.#active = true;
    this.toEnd();
  }

  /** Stops following after a moment, in which trailing content is still followed. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#active = false), SETTLE_MS);
  }

  /** Keeps the scroll position, whatever grows. */
  stay() {
    this.#following = false;
    this.#pinnedUntilMs = 0;
  }

  toEnd() {
    this.#following = true;
    this.#pinnedUntilMs = performance.now() + SETTLE_MS; // parts coming near the viewport are only rendered now
    this.#jump();
    this.#showButton();
  }

  #listenToReader() {
    const passive = { passive: true };
    addEventListener("wheel", ({ deltaY }) => deltaY < 0 && this.#leave(), passive);
    addEventListener("touchstart", ({ touches }) => (this.#touchY = touches[0].clientY), passive);
    addEventListener("touchmove", ({ touches }) => touches[0].clientY > this.#touchY + 4 && this.#leave(), passive);
    addEventListener("keydown", ({ key, target }) => UP_KEYS.has(key) && !writes(target) && this.#leave());
    document.addEventListener("selectionchange", () => this.#selecting() && this.#leave());
  }

  /** Text being selected must not move away under the pointer. */
  #selecting() {
    const selection = getSelection();
    return !selection.isCollapsed && this.thread.contains(selection.anchorNode);
  }

  #grown() {
    const pinned = performance.now() < this.#pinnedUntilMs;
    if ((this.#active || pinned) && this.#following) this.#jump();
    this.#showButton();
  }

  /** For an answer that arrived at once, keeps the question in view: its end is not where to start reading. */
  #toBeginning(turn) {
    this.#pinnedUntilMs = 0;
    if (this.#following && turn.getBoundingClientRect().top < 0) turn.scrollIntoView({ block: "start", behavior: "instant" });
  }

  #jump() {
    page().scrollTop = page().scrollHeight;
    [this.#lastTop, this.#lastHeight] = [page().scrollTop, page().scrollHeight];
  }

  /**
   * Upward scrolling counts as the user's only if the page did not shrink, which scrolls it automatically. Following
   * resumes when the user scrolls down near the end; being near the end is not enough while scrolling up.
   */
  #scrolled() {
    const [top, height] = [page().scrollTop, page().scrollHeight];
    const shorter = height < this.#lastHeight;
    if (nearEnd() && top > this.#lastTop) this.#following ||= !this.#selecting();
    else if (!nearEnd() && top < this.#lastTop - 2 && !shorter) this.#leave();
    [this.#lastTop, this.#lastHeight] = [top, height];
    this.#showButton();
  }

  #leave() {
    this.#pinnedUntilMs = 0;
    if (page().scrollHeight > innerHeight + NEAR_PX) this.#following = false;
  }

  #showButton() {
    this.button.hidden = nearEnd() || this.#seesEnd();
  }

  /** Whether the end of the last answer is in view; only its sources may be further down. */
  #seesEnd() {
    const turn = this.thread.lastElementChild;
    const answer = turn?.dataset?.status === "completed" ? turn.querySelector(".prose") : null;
    const bottom = answer?.getBoundingClientRect().bottom;
    return bottom > 0 && bottom < innerHeight;
  }
}
