/** Keeps the end of the conversation in view while it grows, unless the reader went up or selects something. */

const NEAR_PX = 90;
const SETTLE_MS = 400;
const READ_MS = 1_000; // sooner nobody has read an answer that is there at once
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
    // What comes below a finished answer, its sources, does not push away what is being read.
    thread.addEventListener("answered", ({ target, detail }) => {
      this.#grown(); // with the answer's last piece, which is drawn in this very frame
      if (detail.status === "failed") return; // why, and how to go on, is still to come
      this.#active = false;
      if (detail.saidForMs < READ_MS) this.#toBeginning(target);
    });
    button.addEventListener("click", () => this.toEnd());
  }

  /** The conversation begins to grow: go along. */
  start() {
    clearTimeout(this.#timer);
    this.#active = true;
    this.toEnd();
  }

  /** What still comes in the next moment belongs to it. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#active = false), SETTLE_MS);
  }

  /** The page stays where it is, whatever grows. */
  stay() {
    this.#following = false;
    this.#pinnedUntilMs = 0;
  }

  toEnd() {
    this.#following = true;
    this.#pinnedUntilMs = performance.now() + SETTLE_MS; // what comes near the window is rendered only now
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

  /** Text that the reader marks must not run away under the mouse. */
  #selecting() {
    const selection = getSelection();
    return !selection.isCollapsed && this.thread.contains(selection.anchorNode);
  }

  #grown() {
    const pinned = performance.now() < this.#pinnedUntilMs;
    if ((this.#active || pinned) && this.#following) this.#jump();
    this.#showButton();
  }

  /** Of an answer that came at once the question stays in view: its end is not where to begin. */
  #toBeginning(turn) {
    this.#pinnedUntilMs = 0;
    if (this.#following && turn.getBoundingClientRect().top < 0) turn.scrollIntoView({ block: "start", behavior: "instant" });
  }

  #jump() {
    page().scrollTop = page().scrollHeight;
    [this.#lastTop, this.#lastHeight] = [page().scrollTop, page().scrollHeight];
  }

  /**
   * A page that became shorter scrolls by itself: only a reader goes up in one that did not. Near the end it follows
   * again when the reader comes down: who has just begun to go up is there, too.
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

  /** The last answer's end is in view, only its sources may be further down. */
  #seesEnd() {
    const turn = this.thread.lastElementChild;
    const answer = turn?.dataset?.status === "completed" ? turn.querySelector(".prose") : null;
    const bottom = answer?.getBoundingClientRect().bottom;
    return bottom > 0 && bottom < innerHeight;
  }
}
