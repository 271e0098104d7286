/** The line above the first turn that leads to the session's other branches; there only when there are any. */

import { el } from "./dom.js";
import { formatTime, t } from "./i18n.js";

export class BranchLine {
  /** `onOpen(turnId)` is to show the branch that ends there; without an id, the newest. */
  constructor(element, onOpen) {
    Object.assign(this, { element, onOpen });
  }

  /** `aside` as `branchesAside` gives it. The focus stays in the line when it was there. */
  show({ newest, total, ends }) {
    const held = this.element.contains(document.activeElement);
    const title = total > 0 && el("span", { i18n: ["earlierBranches", { n: total }] });
    this.element.replaceChildren(...[title, ...ends.map((node) => this.#button(node)), newest && this.#newest()].filter(Boolean));
    this.element.hidden = !newest && total === 0;
    if (held) this.element.querySelector("button")?.focus({ preventScroll: true });
  }

  clear() {
    this.element.replaceChildren();
    this.element.hidden = true;
  }

  #button({ turn_id: id, created_at: at }) {
    const time = formatTime(at) || t("untitled");
    return el("button", { class: "text-button", type: "button", text: time, label: ["openBranch", { time }], on: { click: () => this.onOpen(id) } });
  }

  #newest() {
    return el("button", { class: "text-button newest", type: "button", i18n: "newestBranch", on: { click: () => this.onOpen() } });
  }
}
