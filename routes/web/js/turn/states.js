/** The states of a turn, as people see them: on the element, in words, and told to a screen reader. */

import { tell } from "../base/bus.js";

const ANNOUNCED = new Set(["sending", "thinking", "streaming", "approving", "retrying", "reconnecting", "cancelled", "interrupted"]);
const CUT = new Set(["cancelled", "interrupted", "failed"]);
const ENDS = new Set(["completed", "error"]);
const CALM_MS = 350; // a state that passes at once is not told

let timer = 0;

/** A turn's stored status as its state. */
export const stateOf = (status) => ({ failed: "error", running: "sending" })[status] ?? status;

/**
 * Whether the next question may follow the turn: it has its answer, or the part that was said before it was cut.
 * One that failed or was stopped before a word came leaves its place to the next question.
 */
export const leadsOn = ({ status, command, answer }) => !command && (status === "completed" || (CUT.has(status) && Boolean(answer)));

/** What a card says of a turn that ended so, where no error told of it; "" for an end that needs no card. */
export function noteOf(status, answer) {
  if (status === "failed" && answer) return "note_broken";
  return status === "failed" || status === "interrupted" ? `note_${status}` : "";
}

export class TurnState {
  /** `element` carries it as data-state, for the styles. */
  constructor(element) {
    this.element = element;
  }

  get now() {
    return this.element.dataset.state;
  }

  /** Only what happens while the reader is there is told. `text` are the words. */
  set(state, text = "") {
    if (state === this.now) return;
    const asks = state === "approving";
    if (asks || this.now === "approving") tell("approval", { turnId: this.element.dataset.turn, asks });
    this.element.dataset.state = state;
    if (text && ANNOUNCED.has(state)) announce(text, this.element);
    else if (ENDS.has(state)) clearTimeout(timer); // what still waits to be told is over
  }
}

/** The end of an answer is told by the conversation, an error by its card. */
function announce(text, element) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const place = document.querySelector("#announcer");
    if (place && element.isConnected) place.textContent = text;
  }, CALM_MS);
}
