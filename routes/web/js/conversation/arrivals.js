/**
 * How the page moves when another branch comes onto it. Each has `before()`, called just before turns leave the page,
 * `begun()`, called when the first of the others are there, and `after()`, when all are.
 */

import { isWriting } from "../base/dom.js";

/** To the end, and along with it as it grows. */
export const atEnd = (follower, shown) => ({
  before() {
    shown.letGo();
    follower.start();
  },
  begun() {},
  after() {},
});

/** The turn stands where another version of it, `view`, stood; the keyboard is on the same button of its pager. */
export function inPlace(follower, shown, { view, turnId, step }) {
  let top = 0;
  return {
    before() {
      top = view.element.getBoundingClientRect().top;
      follower.stay();
      shown.holdPlace();
    },
    begun() {
      const next = shown.find(turnId);
      if (!next) return;
      scrollBy({ top: next.element.getBoundingClientRect().top - top, behavior: "instant" });
      if (!isWriting()) next.actions.versions.focus(step);
    },
    after() {},
  };
}

/** What is new stands below. */
export const asItIs = (follower) => ({
  before() {
    follower.stay();
  },
  begun() {},
  after() {},
});

/** To a turn somewhere on the branch. */
export const atTurn = (follower, shown, turnId) => ({
  before() {
    shown.letGo();
    follower.stay();
  },
  begun() {},
  after() {
    const turn = shown.find(turnId)?.element;
    if (!turn) return;
    const asked = turn.querySelector(".asked");
    asked.tabIndex = -1;
    if (!isWriting()) asked.focus({ preventScroll: true });
    turn.scrollIntoView({ block: "start", behavior: "instant" }); // its margin keeps it clear of the title
  },
});
