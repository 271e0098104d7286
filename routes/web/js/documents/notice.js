/** What was just done, in quiet sentences that stay until they are closed or followed by others. */

import { el, icon } from "../base/dom.js";

export class Notice {
  constructor() {
    this.text = el("p");
    const close = el("button", { class: "quiet", type: "button", label: "close", on: { click: () => this.show([]) } }, icon("close"));
    this.box = el("div", { class: "document-notice", hidden: true }, this.text, close);
    this.element = el("div", { class: "documents-said", role: "status" }, this.box);
  }

  /** `sentences` are [key, vars]. */
  show(sentences, isFailure = false) {
    this.box.hidden = !sentences.length;
    this.box.classList.toggle("failed", isFailure);
    this.text.replaceChildren(...sentences.map((sentence) => el("span", { i18n: sentence })));
  }
}
