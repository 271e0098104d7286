/** ‹ 2/3 ›: leads from one version of a turn to the next. Not there while there is only one. */

import { el, icon, setLabel } from "../base/dom.js";

export class VersionPager {
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
