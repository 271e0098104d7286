/**
 * How the page scrolls when it switches to another branch. Each has `before()`, called just before turns are removed,
 * `begun()`, called when the first new turns are shown, and `after()`, called when all are. `turnId` is a turn that must
 * be shown.
 */

import { isTyping } from "../base/dom.js";

/** Scrolls to the end and follows it as it grows. */
export const atEnd = (follower, shown) => ({
  before() {
    shown.releasePlace();
    follower.start();
  },
  begun() {},
  after() {},
});

/** Puts the turn where its other version, `view`, was, with the focus on the same button of its pager. */
export function inPlace(follower, shown, { view, turnId, step }) {
  let top = 0;
  return {
    turnId,
    before() {
      top = view.element.getBoundingClientRect().top;
      follower.stay();
      shown.holdPlace();
    },
    begun() {
      const next = shown.find(turnId);
      if (!next) return;
      scrollBy({ top: next.element.getBoundingClientRect().top - top, behavior: "instant" });
      if (!isTyping()) next.actions.versions.focus(step);
    },
    after() {},
  };
}

/** Stays where it is; new turns appear below. */
export const stayPut = (follower) => ({
  before() {
    follower.stay();
  },
  begun() {},
  after() {},
});

/** Scrolls to a turn somewhere on the branch. */
export const atTurn = (follower, shown, turnId) => ({
  turnId,
  before() {
    shown.releasePlace();
    follower.stay();
  },
  begun() {},
  after() {
    const turn = shown.find(turnId)?.element;
    if (!turn) return;
    const asked = turn.querySelector(".asked");
    asked.tabIndex = -1;
    if (!isTyping()) asked.focus({ preventScroll: true });
    turn.scrollIntoView({ block: "start", behavior: "instant" }); // its scroll margin keeps it clear of the title
  },
});
