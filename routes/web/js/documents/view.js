/** An opened document: its metadata, actions and passages. */

import { el, icon } from "../base/dom.js";
import { originalWords, reasonOf } from "../uploads/reasons.js";
import { ChunkList } from "./chunks.js";
import { addedOf, factsOf, nameOf, tagsOf } from "./facts.js";
import { DocumentForm } from "./form.js";

export class DocumentView {
  /**
   * `on`: `back()`, `ask(document)`, `remove(document)`, `changed(document)`, `quote(chunk)`, `persona(chunk)`;
   * `mayChange`: whether this user may change and delete it.
   */
  constructor(document, scroller, mayChange, on) {
    Object.assign(this, { document, mayChange, on });
    this.back = el("button", { class: "quiet document-back", type: "button", label: "docBackToDocuments", on: { click: on.back } }, icon("back"));
    this.title = el("h3", { class: "document-title", tabindex: -1, text: nameOf(document) });
    this.facts = el("div", { class: "document-about" });
    this.chunks = new ChunkList(document.document_id, scroller, on);
    this.element = el("section", { class: "document-view", label: "docOpenedDocument" },
      el("div", { class: "document-view-head" }, this.back, this.title), this.facts, this.chunks.element);
    this.#describe();
    if (document.status === "ready") this.chunks.load();
  }

  #describe(focus = false) {
    const { document } = this;
    this.facts.replaceChildren(
      el("p", { class: "document-facts" }, ...factsOf(document), ...tagsOf(document)),
      addedOf(document), ...this.#problem(), this.#actions());
    if (focus) this.facts.querySelector("[data-action=edit]")?.focus();
  }

  #problem() {
    const { status, error } = this.document;
    if (status === "ingesting") return [el("p", { class: "document-state", i18n: "docNotYet" })];
    if (!error) return [];
    const key = status === "failed" ? reasonOf({ message: error }) : "docNewerRefused";
    return [el("p", { class: "document-state failed", i18n: key }), originalWords(error)].filter(Boolean);
  }

  #actions() {
    const { document, on } = this;
    const offer = (name, key, shape, act) => el("button", { class: "quiet worded", type: "button", "data-action": name,
      on: { click: act } }, icon(shape), el("span", { i18n: key }));
    return el("div", { class: "document-actions" },
      document.status === "ready" && offer("ask", "docAskOnlyThis", "filter", () => on.ask(document)),
      this.mayChange && offer("edit", "docEditDocument", "pencil", () => this.#edit()),
      this.mayChange && offer("remove", "remove", "trash", () => on.remove(document)));
  }

  #edit() {
    const form = new DocumentForm(this.document, (changed) => {
      if (changed) this.document = changed;
      if (changed) this.on.changed(changed);
      this.#describe(true);
    });
    this.facts.querySelector(".document-actions").replaceWith(form.element);
    form.focus();
  }
}
