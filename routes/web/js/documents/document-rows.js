/** The rows of the list of documents. */

import { el, icon } from "../base/dom.js";
import { factsOf, tagsOf } from "./facts.js";
import { reasonOf } from "./reasons.js";

/** `mayChange`: whether this reader may delete it. */
export function documentRow(document, { mayChange, onOpen, onRemove }) {
  const { document_id: id, file_name: name, status } = document;
  const open = el("button", { class: "document-open", type: "button", on: { click: onOpen } },
    el("span", { class: "document-name", text: name }),
    el("span", { class: "document-facts" }, ...factsOf(document), ...tagsOf(document)),
    state(document));
  const remove = mayChange && el("button", { class: "quiet document-remove", type: "button",
    label: ["docRemoveDocument", { name }], on: { click: onRemove } }, icon("trash"));
  return el("li", { class: "document", "data-id": id, "data-status": status }, icon("docs"), open, remove);
}

/** Nothing for what is simply there. A ready document with an error has a newer version that cannot be read. */
function state({ status, error }) {
  if (status === "ingesting") return el("span", { class: "document-state", i18n: "ingesting" });
  if (status === "failed") return el("span", { class: "document-state failed", i18n: reasonOf({ message: error ?? "" }) });
  return error && el("span", { class: "document-state failed", i18n: "docNewerRefused" });
}
