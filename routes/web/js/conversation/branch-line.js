/** The line above the first turn that leads to the session's other branches; there only when there are any. */

import { el, icon } from "../base/dom.js";

export class BranchLine {
  /** `onMap()` is to open the map of branches, `onNewest()` to show the newest. */
  constructor(element, { onMap, onNewest }) {
    Object.assign(this, { element, onMap, onNewest });
  }

  /** `aside` as `branchesAside` gives it. The focus stays in the line when it was there. */
  show({ newest, others, total }) {
    const held = this.element.contains(document.activeElement) && document.activeElement.className;
    this.element.hidden = !newest && others === 0;
    this.element.replaceChildren(...(this.element.hidden ? [] : [this.#map(total), newest && this.#newest()].filter(Boolean)));
    if (held) (this.element.getElementsByClassName(held)[0] ?? this).focus({ preventScroll: true });
  }

  focus() {
    (this.element.querySelector(".newest") ?? this.element.querySelector("button"))?.focus({ preventScroll: true });
  }

  clear() {
    this.element.replaceChildren();
    this.element.hidden = true;
  }

  #map(n) {
    return el("button", { class: "open-map", type: "button", "aria-haspopup": "dialog", on: { click: () => this.onMap() } },
      icon("branch"), el("span", { i18n: ["branchCount", { n }] }));
  }

  #newest() {
    return el("button", { class: "text-button newest", type: "button", i18n: "newestBranch", on: { click: () => this.onNewest() } });
  }
}
