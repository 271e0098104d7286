/** 👍 and 👎 on an answer, as two buttons of which one may be pressed; pressed again, it says nothing any more. */

import { rateTurn } from "../api/turns.js";
import { el, icon } from "../base/dom.js";
import { sayFailed } from "../base/notice.js";

const BUTTONS = { up: { words: "rateUp", picture: "thumbUp" }, down: { words: "rateDown", picture: "thumbDown" } };

export class Rating {
  #buttons = new Map();
  #comment = ""; // given elsewhere: what is said here leaves it as it is
  #stored = null;
  #pressed = null;
  #sending = false;

  constructor(turnId) {
    this.turnId = turnId;
    for (const [rating, { words, picture }] of Object.entries(BUTTONS)) {
      this.#buttons.set(rating, el("button", { class: "quiet rate", type: "button", label: words, "aria-pressed": "false",
        hidden: true, on: { click: () => this.#press(rating) } }, icon(picture)));
    }
  }

  get buttons() {
    return [...this.#buttons.values()];
  }

  /** `feedback` as the server tells it, where there is one. */
  show({ rating = null, comment = "" } = {}) {
    this.#comment = comment;
    this.#stored = rating;
    this.#mark(rating);
  }

  #mark(pressed) {
    this.#pressed = pressed;
    for (const [rating, button] of this.#buttons) button.setAttribute("aria-pressed", String(rating === pressed));
  }

  /** What is pressed while the server is being told is told next. */
  async #press(rating) {
    this.#mark(rating === this.#pressed ? null : rating);
    if (this.#sending) return;
    this.#sending = true;
    while (this.#pressed !== this.#stored) await this.#tell(this.#pressed);
    this.#sending = false;
  }

  async #tell(rating) {
    try {
      await rateTurn(this.turnId, { rating, comment: this.#comment });
      this.#stored = rating;
    } catch (error) {
      this.#mark(this.#stored);
      sayFailed("rateFailed", error, "rateGone");
    }
  }
}
