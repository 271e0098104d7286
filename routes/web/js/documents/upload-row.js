/** The row of a file on its way in. */

import { el, icon, setLabel, setText } from "../base/dom.js";
import { clockOf, formatBytes } from "./facts.js";
import { originalWords, reasonOf, showReason } from "./reasons.js";
import { t } from "../base/i18n.js";

const STAGES = {
  waiting: "docStageWaiting", parsing: "docStageParsing", embedding: "docStageEmbedding", storing: "docStageStoring",
  verifying: "docStageVerifying", lost: "docStageLost",
};
const STATES = {
  queued: "docUploadQueued", checking: "docUploadChecking", cancelling: "docUploadCancelling", cancelled: "docUploadCancelled",
  same: "docSame", done: "docReady", failed: "docFailed",
};

export class UploadRow {
  #drawn = "";

  /** `on`: `cancel`, `retry` and `dismiss`, called without arguments. */
  constructor(upload, on) {
    this.on = on;
    this.text = el("span", { class: "document-state" });
    this.bar = el("progress", { max: 1 });
    setLabel(this.bar, "docProgressOf", { name: upload.name });
    this.actions = el("span", { class: "upload-actions" });
    this.element = el("li", { class: "upload" }, icon("upload"),
      el("span", { class: "document-name", text: upload.name }), this.text, this.bar, this.actions);
    this.show(upload);
  }

  show(upload) {
    const { state, job } = upload;
    const stage = state === "reading" ? job.stage : "";
    Object.assign(this.element.dataset, { state, stage });
    this.text.classList.remove("failed");
    this.#words(upload, stage);
    this.#progress(upload, stage);
    if (this.#drawn !== state) this.#offer(upload);
    this.#drawn = state;
  }

  #words({ state, reason, sent, of, job }, stage) {
    if (reason) return showReason(this.text, reason);
    if (state === "uploading") return setText(this.text, "docUploadingOf", { sent: formatBytes(sent), of: formatBytes(of) });
    if (stage === "retrying") return setText(this.text, "docStageRetrying", retryOf(job));
    if (stage === "embedding" && job.total) return setText(this.text, "ingestingOf", { done: job.done, total: job.total });
    setText(this.text, stage ? (STAGES[stage] ?? "ingesting") : STATES[state]);
  }

  #progress({ state, sent, of, job }, stage) {
    const part = state === "uploading" ? sent / of : stage === "embedding" && job.total ? job.done / job.total : null;
    this.bar.hidden = part === null;
    if (part !== null) this.bar.value = part || 0;
  }

  #offer(upload) {
    const hadFocus = this.actions.contains(document.activeElement);
    const offered = [
      upload.canRetry && this.#button("retry", "docRetryUpload", upload),
      upload.canCancel && this.#button("cancel", "docCancelUpload", upload),
      !upload.isGoing && this.#button("dismiss", "docDismissUpload", upload),
    ].filter(Boolean);
    this.actions.replaceChildren(...offered);
    this.element.querySelector(".original")?.remove();
    const words = upload.isGoing ? null : originalWords(upload.message);
    if (words) this.element.append(words);
    if (hadFocus) offered[0]?.focus();
  }

  #button(action, label, { name }) {
    const shape = action === "retry" ? "retry" : "close";
    return el("button", { class: "quiet", type: "button", label: [label, { name }], "data-action": action,
      on: { click: this.on[action] } }, icon(shape));
  }
}

function retryOf({ error, error_code: code, next_try_at: at, attempt }) {
  return { why: t(reasonOf({ code: code ?? "", message: error ?? "" })), time: clockOf(at), attempt: attempt + 1 };
}
