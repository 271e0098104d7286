/** The rows of the documents panel. */

import { el, icon, setText } from "./dom.js";

export function documentRow(document, onRemove) {
  const remove = el("button", { class: "quiet", type: "button", label: "remove", on: { click: onRemove } }, icon("trash"));
  return el("li", { class: `document ${document.status}` }, icon("docs"),
    el("span", { class: "document-name", text: document.file_name }), state(document), remove);
}

function state({ status, chunk_count: n, error }) {
  if (status === "failed") return el("span", { class: "document-state failed", i18n: error || "docFailed" });
  return el("span", { class: "document-state", i18n: status === "ready" ? ["chunks", { n }] : "ingesting" });
}

export function uploadRow(name) {
  const text = el("span", { class: "document-state", i18n: "uploading" });
  const bar = el("progress", { label: "uploading" });
  const element = el("li", { class: "document uploading" }, icon("upload"),
    el("span", { class: "document-name", text: name }), text, bar);
  return { element, text, bar };
}

export function showProgress({ text, bar }, { done, total }) {
  setText(text, total ? "ingestingOf" : "ingesting", { done, total });
  if (!total) return;
  bar.max = total;
  bar.value = done;
}

/** `message` is the server's sentence; empty when it gave none. */
export function showFailure({ element, text, bar }, message, onDismiss) {
  bar.remove();
  setText(text, message || "docFailed");
  text.classList.add("failed");
  element.append(el("button", { class: "quiet", type: "button", label: "close", on: { click: onDismiss } }, icon("close")));
}
