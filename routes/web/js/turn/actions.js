/** What a reader can do with a turn: its versions, and the quiet buttons under the question. */

import { copyText } from "../base/clipboard.js";
import { el, icon } from "../base/dom.js";
import { toggleMenu } from "../base/menu.js";
import { showPrompt } from "../prompt/prompt-dialog.js";
import { Rating } from "./rating.js";
import { VersionPager } from "./version-pager.js";

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
