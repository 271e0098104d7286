/** What stands where the documents will: what can be read, and where to begin. */

import { el } from "../base/dom.js";

export class EmptyState {
  constructor() {
    this.endings = el("p", { class: "faint" });
    const all = el("details", { class: "original" }, el("summary", { i18n: "docAllFormats" }), this.endings);
    this.element = el("div", { class: "no-documents", hidden: true },
      el("p", { i18n: "noDocuments" }), el("p", { class: "faint", i18n: "docReadable" }), all);
  }

  set formats(endings) {
    this.endings.textContent = endings.join(" ");
  }
}
