/** The actions on a turn: its version pager and the buttons under the question. */

import { rateTurn } from "../api/turns.js";
import { copyText } from "../base/clipboard.js";
import { el, icon, setLabel } from "../base/dom.js";
import { toggleMenu } from "../base/menu.js";
import { notifyFailure } from "../frame/notice.js";
import { showPrompt } from "../prompt/dialog.js";

export class TurnActions {
  #copy = this.#button("copy-answer", "copy", "copyAnswer", () => copyText(this.view.answer.text, this.#copy));
  #edit = this.#button("edit-question", "pencil", "editQuestion", () => this.handlers.edit(this.view));
  #regenerate = this.#button("regenerate", "retry", "regenerate", () => this.handlers.regenerate(this.view));
  #continue = this.#button("continue-here", "branch", "continueHere", () => this.handlers.continueFrom(this.view));
  #prompt = el("button", { class: "quiet show-prompt", type: "button", i18n: "prompt", label: "promptOpen", hidden: true,
    on: { click: () => showPrompt(this.view.turnId, this.#prompt) } });
  #more = el("button", { class: "quiet turn-more", type: "button", label: "turnMore", "aria-haspopup": "menu",
    "aria-expanded": "false", hidden: true, on: { click: () => this.#openMenu() } }, icon("dots"));

  /** `handlers`: the conversation's handlers, each called with the turn's view: edit, regenerate, continueFrom,
   * toVersion(view, step). Without them the turn is read-only. */
  constructor(view, handlers) {
    Object.assign(this, { view, handlers });
    this.versions = new VersionPager((step) => handlers.toVersion(view, step));
    this.rating = new Rating(view.turnId);
    this.element = el("div", { class: "turn-actions" }, this.versions.element, this.#copy, ...this.rating.buttons,
      this.#edit, this.#regenerate, this.#continue, this.#prompt, this.#more);
  }

  /** Call when the turn has ended and when it starts again. */
  refresh() {
    const settled = this.view.status !== "running";
    const question = settled && this.view.command === ""; // a command is answered without a model
    this.#copy.hidden = !settled || this.view.answer.empty;
    this.#prompt.hidden = this.#more.hidden = !question;
    this.#edit.hidden = !question || !this.handlers.edit;
    this.#regenerate.hidden = !question || !this.handlers.regenerate;
    this.#continue.hidden = !question || !this.handlers.continueFrom || !this.view.canBeFollowed;
    for (const button of this.rating.buttons) button.hidden = !this.view.canBeFollowed;
  }

  #button(name, picture, words, click) {
    return el("button", { class: `quiet ${name}`, type: "button", label: words, hidden: true, on: { click } }, icon(picture));
  }

  /** On a phone: a menu of the buttons that the style sheet hides for lack of room. */
  #openMenu() {
    const [up, down] = this.rating.buttons;
    const pictures = [[up, "thumbUp"], [down, "thumbDown"], [this.#edit, "pencil"], [this.#regenerate, "retry"],
      [this.#continue, "branch"], [this.#prompt, "prompt"]];
    const items = pictures.filter(([button]) => isFolded(button)).map(([button, picture]) => menuItem(button, picture));
    toggleMenu(this.#more, { label: "turnMore", items });
  }
}

/** "Continue from here" on the last turn is hidden because it is what happens anyway. */
const isFolded = (button) => !button.hidden && !button.getClientRects().length && !button.matches(".turn:last-child .continue-here");

function menuItem(button, picture) {
  const { i18n, i18nLabel } = button.dataset;
  const pressed = button.getAttribute("aria-pressed");
  return { i18n: i18n ?? i18nLabel, icon: picture, run: () => button.click(), ...(pressed && { checked: pressed === "true" }) };
}

/* 👍 and 👎 on an answer: two toggle buttons of which at most one is pressed. */

const BUTTONS = { up: { words: "rateUp", picture: "thumbUp" }, down: { words: "rateDown", picture: "thumbDown" } };

class Rating {
  #buttons = new Map();
  #comment = ""; // given elsewhere and left unchanged by a rating here
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

  /** Takes the server's `feedback`, if there is any. */
  show({ rating = null, comment = "" } = {}) {
    this.#comment = comment;
    this.#stored = rating;
    this.#mark(rating);
  }

  #mark(pressed) {
    this.#pressed = pressed;
    for (const [rating, button] of this.#buttons) button.setAttribute("aria-pressed", String(rating === pressed));
  }

  /** A press during a request is sent after it. */
  async #press(rating) {
    this.#mark(rating === this.#pressed ? null : rating);
    if (this.#sending) return;
    this.#sending = true;
    while (this.#pressed !== this.#stored) await this.#send(this.#pressed);
    this.#sending = false;
  }

  async #send(rating) {
    try {
      await rateTurn(this.turnId, { rating, comment: this.#comment });
      this.#stored = rating;
    } catch (error) {
      this.#mark(this.#stored);
      notifyFailure("rateFailed", error, "rateMissing");
    }
  }
}

/** ‹ 2/3 ›: steps through the versions of a turn. Hidden if there is only one. */
class VersionPager {
  #buttons = new Map();
  #count = el("span", { class: "version-count", "aria-hidden": "true" });

  /** `onStep(-1 | 1)` is called only if there is a version on that side. */
  constructor(onStep) {
    this.onStep = onStep;
    const [before, after] = [this.#button(-1, "versionBefore"), this.#button(1, "versionAfter")];
    this.element = el("span", { class: "versions", role: "group", hidden: true }, before, this.#count, after);
  }

  /** Shows version `n` of `of`, counted from 1. */
  show(n, of) {
    this.element.hidden = of < 2;
    this.#count.textContent = `${n}/${of}`;
    setLabel(this.element, "versionOf", { n, of });
    this.#end(-1, n <= 1);
    this.#end(1, n >= of);
  }

  focus(step) {
    this.#buttons.get(step).focus({ preventScroll: true });
  }

  /** Uses aria-disabled rather than disabled, because the button may have the focus. */
  #end(step, isEnd) {
    this.#buttons.get(step).setAttribute("aria-disabled", String(isEnd));
  }

  #button(step, words) {
    const click = ({ currentTarget }) => currentTarget.getAttribute("aria-disabled") !== "true" && this.onStep(step);
    const button = el("button", { class: "quiet version-step", type: "button", "data-step": step, label: words, on: { click } },
      icon("chevron"));
    this.#buttons.set(step, button);
    return button;
  }
}
