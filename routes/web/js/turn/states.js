/** The visible states of a turn: on the element, in words, and announced to screen readers. */

import { publish } from "../base/bus.js";

const ANNOUNCED = new Set(["sending", "thinking", "streaming", "approving", "retrying", "reconnecting", "cancelled", "interrupted"]);
const CUT = new Set(["cancelled", "interrupted", "failed"]);
const ENDS = new Set(["completed", "error"]);
const MIN_SHOWN_MS = 350; // states shorter than this are not announced

let timer = 0;

/** The state for a stored status. */
export const stateOf = (status) => ({ failed: "error", running: "sending" })[status] ?? status;

/**
 * Whether the next question may follow the turn: it has an answer, or part of one before it was cut off. A turn that
 * failed or was stopped before its first word is replaced by the next question.
 */
export const canBeFollowed = ({ status, command, answer }) => !command && (status === "completed" || (CUT.has(status) && Boolean(answer)));

/** The text key for a turn that ended this way without an error event; "" if no card is needed. */
export function noteOf(status, answer) {
  if (status === "failed" && answer) return "note_broken";
  return status === "failed" || status === "interrupted" ? `note_${status}` : "";
}

export class TurnState {
  /** Sets the state as data-state on `element`, for the style sheet. */
  constructor(element) {
    this.element = element;
  }

  get now() {
    return this.element.dataset.state;
  }

  /** Sets the state; `text` announces it. Only live changes are announced. */
  set(state, text = "") {
    if (state === this.now) return;
    const asks = state === "approving";
    if (asks || this.now === "approving") publish("approval", { turnId: this.element.dataset.turn, asks });
    this.element.dataset.state = state;
    if (text && ANNOUNCED.has(state)) announce(text, this.element);
    else if (ENDS.has(state)) clearTimeout(timer); // cancels a pending announcement
  }
}

/** The end of an answer is announced by the conversation, an error by its card. */
function announce(text, element) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const place = document.querySelector("#announcer");
    if (place && element.isConnected) place.textContent = text;
  }, MIN_SHOWN_MS);
}
