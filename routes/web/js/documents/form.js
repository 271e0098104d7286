/** Editing a document's tags and date in place. */

import { changeDocument } from "../api/documents.js";
import { el, setText } from "../base/dom.js";
import { reasonOfRequest } from "../uploads/reasons.js";

const DATE = /^\d{4}(-\d{2}(-\d{2})?)?$/;
const split = (text) => [...new Set(text.split(/[,，、;；\n]/).map((tag) => tag.trim()).filter(Boolean))];

/** `onDone(document)` gets the changed document, or null if nothing was changed. */
export class DocumentForm {
  constructor(document, onDone) {
    Object.assign(this, { document, onDone });
    this.tags = el("input", { type: "text", value: document.tags.join("，"), disabled: Boolean(document.source), autocomplete: "off" });
    this.date = el("input", { type: "text", value: document.date ?? "", inputmode: "numeric", maxlength: 10,
      placeholder: "2026-01-31", autocomplete: "off" });
    this.problem = el("p", { class: "form-problem failed", role: "alert" });
    this.element = el("form", { class: "document-form", on: { submit: (event) => this.#submit(event), keydown: (event) => this.#key(event) } },
      field("docTagsField", this.tags), document.source && el("p", { class: "faint", i18n: ["docTagsOfSource", { source: document.source }] }),
      field("docDateField", this.date), this.problem, this.#buttons());
  }

  focus() {
    (this.tags.disabled ? this.date : this.tags).focus();
  }

  #buttons() {
    return el("div", { class: "form-actions" },
      el("button", { class: "button primary", i18n: "docSave" }),
      el("button", { class: "button", type: "button", i18n: "cancel", on: { click: () => this.onDone(null) } }));
  }

  /** Esc closes the form, not the panel. */
  #key(event) {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    this.onDone(null);
  }

  async #submit(event) {
    event.preventDefault();
    const date = this.date.value.trim();
    if (date && !DATE.test(date)) return this.#refuse("docDateForm", this.date);
    const changes = { date: date || null, ...(this.tags.disabled ? {} : { tags: split(this.tags.value) }) };
    try {
      this.onDone(await changeDocument(this.document.document_id, changes));
    } catch (error) {
      this.#refuse(problemOf(error, this.document), this.date);
    }
  }

  #refuse(key, input) {
    setText(this.problem, key);
    if (key === "docDateForm") input.focus();
  }
}

const field = (key, input) => el("label", {}, el("span", { i18n: key }), input);

function problemOf(error, { source }) {
  if (error.status === 409) return source ? "docTagsFollowed" : "docStillReading";
  if (error.status === 422) return /tags/.test(error.message) ? "docTagsForm" : "docDateForm";
  return reasonOfRequest(error);
}
