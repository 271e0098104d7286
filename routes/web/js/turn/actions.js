/** What a reader can do with a turn: its versions, and the quiet buttons under the question. */

import { rateTurn } from "../api/turns.js";
import { copyText } from "../base/clipboard.js";
import { el, icon, setLabel } from "../base/dom.js";
import { toggleMenu } from "../base/menu.js";
import { sayFailed } from "../frame/notice.js";
import { showPrompt } from "../prompt/dialog.js";

export class TurnActions {
  #copy = this.#button("copy-answer", "copy", "copyAnswer", () => copyText(this.view.answer.text, this.#copy));
  #edit = this.#button("edit-question", "pencil", "editQuestion", () => this.acts.edit(this.view));
  #regenerate = this.#button("regenerate", "retry", "regenerate", () => this.acts.regenerate(this.view));
  #continue = this.#button("continue-here", "branch", "continueHere", () => this.acts.continueFrom(this.view));
  #prompt = el("button", { class: "quiet show-prompt", type: "button", i18n: "prompt", label: "promptOpen", hidden: true,
    on: { click: () => showPrompt(this.view.turnId, this.#prompt) } });
  #more = el("button", { class: "quiet turn-more", type: "button", label: "turnMore", "aria-haspopup": "menu",
    "aria-expanded": "false", hidden: true, on: { click: () => this.#openMenu() } }, icon("dots"));

  /** `acts` are what the conversation does with a turn, each given its view: edit, regenerate, continueFrom,
   * toVersion(view, step). Without them the turn can only be read. */
  constructor(view, acts) {
    Object.assign(this, { view, acts });
    this.versions = new VersionPager((step) => acts.toVersion(view, step));
    this.rating = new Rating(view.turnId);
    this.element = el("div", { class: "turn-actions" }, this.versions.element, this.#copy, ...this.rating.buttons,
      this.#edit, this.#regenerate, this.#continue, this.#prompt, this.#more);
  }

  /** To be called when the turn has settled, and when it starts again. */
  refresh() {
    const settled = this.view.status !== "running";
    const question = settled && this.view.command === ""; // a command is answered without a model
    this.#copy.hidden = !settled || this.view.answer.empty;
    this.#prompt.hidden = this.#more.hidden = !question;
    this.#edit.hidden = !question || !this.acts.edit;
    this.#regenerate.hidden = !question || !this.acts.regenerate;
    this.#continue.hidden = !question || !this.acts.continueFrom || !this.view.leadsOn;
    for (const button of this.rating.buttons) button.hidden = !this.view.leadsOn;
  }

  #button(name, picture, words, click) {
    return el("button", { class: `quiet ${name}`, type: "button", label: words, hidden: true, on: { click } }, icon(picture));
  }

  /** On a phone: what the row has no room for, by the styles. */
  #openMenu() {
    const [up, down] = this.rating.buttons;
    const pictures = [[up, "thumbUp"], [down, "thumbDown"], [this.#edit, "pencil"], [this.#regenerate, "retry"],
      [this.#continue, "branch"], [this.#prompt, "prompt"]];
    const items = pictures.filter(([button]) => isFolded(button)).map(([button, picture]) => menuItem(button, picture));
    toggleMenu(this.#more, { label: "turnMore", items });
  }
}

/** The last turn is gone on with in any case. */
const isFolded = (button) => !button.hidden && !button.checkVisibility() && !button.matches(".turn:last-child .continue-here");

function menuItem(button, picture) {
  const { i18n, i18nLabel } = button.dataset;
  const pressed = button.getAttribute("aria-pressed");
  return { i18n: i18n ?? i18nLabel, icon: picture, run: () => button.click(), ...(pressed && { checked: pressed === "true" }) };
}

/* 👍 and 👎 on an answer, as two buttons of which one may be pressed; pressed again, it says nothing any more. */

const BUTTONS = { up: { words: "rateUp", picture: "thumbUp" }, down: { words: "rateDown", picture: "thumbDown" } };

class Rating {
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
      sayFailed("rateFailed", error, "rateMissing");
    }
  }
}

/** ‹ 2/3 ›: leads from one version of a turn to the next. Not there while there is only one. */
class VersionPager {
  #buttons = new Map();
  #count = el("span", { class: "version-count", "aria-hidden": "true" });

  /** `onStep(-1 | 1)` is called only where there is a version on that side. */
  constructor(onStep) {
    this.onStep = onStep;
    const [before, after] = [this.#button(-1, "versionBefore"), this.#button(1, "versionAfter")];
    this.element = el("span", { class: "versions", role: "group", hidden: true }, before, this.#count, after);
  }

  /** The turn is number `n` of `of`, from 1. */
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

  /** A button at its end stays where it is: the keyboard may stand on it. */
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
