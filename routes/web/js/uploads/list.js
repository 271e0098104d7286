/** The files in progress, above the list of documents: a summary line, and a row for each. */

import { el, icon, setLabel, setText } from "../base/dom.js";
import { formatClock, formatBytes, t } from "../base/i18n.js";
import { originalWords, reasonOf, showReason } from "./reasons.js";

export class UploadList {
  #rows = new Map();

  /**
   * `uploads` performs the rows' actions; `onRemove(upload)` deletes the document, `onReplace(upload)` the older ones of
   * its name, each after confirmation; `onEmptied` is called when the focused row was removed and there is no other.
   */
  constructor(uploads, { onRemove, onReplace, onEmptied }) {
    Object.assign(this, { uploads, onRemove, onReplace, onEmptied });
    this.summary = el("p", { class: "upload-summary" });
    this.clear = el("button", { class: "text-button", type: "button", i18n: "docClearEnded", on: { click: () => this.#clear() } });
    this.list = el("ul", { class: "upload-list", role: "list", label: "docUploads" });
    this.element = el("section", { class: "uploads", hidden: true },
      el("div", { class: "upload-head" }, this.summary, this.clear), this.list);
  }

  show(upload) {
    const row = this.#rows.get(upload);
    if (!this.uploads.has(upload)) this.#remove(upload, row);
    else if (row) row.show(upload);
    else this.#add(upload);
    this.#sum();
  }

  #add(upload) {
    const row = new UploadRow(upload, {
      cancel: () => this.uploads.cancel(upload),
      retry: () => this.uploads.retry(upload),
      remove: () => this.onRemove(upload),
      replace: () => this.onReplace(upload),
      dismiss: () => this.uploads.dismiss(upload),
    });
    const isAbove = ([other]) => upload.file && !other.file; // this page's files above the jobs of others
    const below = [...this.#rows].find(isAbove)?.[1].element ?? null;
    this.#rows.set(upload, row);
    this.list.insertBefore(row.element, below);
  }

  #remove(upload, row) {
    if (!row) return;
    const hadFocus = row.element.contains(document.activeElement);
    const next = row.element.nextElementSibling ?? row.element.previousElementSibling;
    row.element.remove();
    this.#rows.delete(upload);
    if (!hadFocus) return;
    const button = next?.querySelector("button");
    if (button) button.focus();
    else this.onEmptied();
  }

  #clear() {
    for (const upload of [...this.#rows.keys()]) if (!upload.isActive) this.uploads.dismiss(upload);
    this.onEmptied();
  }

  #sum() {
    const all = [...this.#rows.keys()];
    const going = all.filter((upload) => upload.isActive).length;
    const failed = all.filter(({ state }) => state === "failed" || state === "refused").length;
    this.element.hidden = !all.length;
    this.clear.hidden = going === all.length;
    if (going) setText(this.summary, failed ? "docGoingAndFailed" : "docGoing", { n: going, failed });
    else setText(this.summary, failed ? "docSomeFailed" : "docUploadsEnded", { n: failed });
  }
}

/* The row of a file in progress. */

const STAGES = {
  waiting: "docStageWaiting", parsing: "docStageParsing", embedding: "docStageEmbedding", storing: "docStageStoring",
  verifying: "docStageVerifying", lost: "docStageLost",
};
const STATES = {
  queued: "docUploadQueued", checking: "docUploadChecking", cancelling: "docUploadCancelling", cancelled: "docUploadCancelled",
  same: "docSame", done: "docSameName", failed: "docFailed",
};

class UploadRow {
  #drawn = "";

  /** `on`: `cancel`, `remove`, `replace`, `retry` and `dismiss`, called without arguments. */
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
      upload.canRemove && this.#button("remove", "docRemoveDocument", upload),
      !upload.isActive && this.#button("dismiss", "docDismissUpload", upload),
    ].filter(Boolean);
    this.actions.replaceChildren(...offered);
    this.element.querySelector(".original")?.remove();
    const words = upload.isActive ? null : originalWords(upload.message);
    if (words) this.element.append(words);
    if (upload.older.length) this.element.append(el("button", { class: "text-button", type: "button", i18n: "docDeleteOlder",
      "data-action": "replace", on: { click: this.on.replace } }));
    if (hadFocus) offered[0]?.focus();
  }

  #button(action, label, { name }) {
    const shape = { retry: "retry", remove: "trash" }[action] ?? "close";
    return el("button", { class: "quiet", type: "button", label: [label, { name }], "data-action": action,
      on: { click: this.on[action] } }, icon(shape));
  }
}

function retryOf({ error, error_code: code, next_try_at: at, attempt }) {
  return { why: t(reasonOf({ code: code ?? "", message: error ?? "" })), time: formatClock(at), attempt: attempt + 1 };
}

/* Announces the end of uploads to screen readers: one by one, or as a count if many end at once. */

const BATCH_MS = 700;

export class UploadAnnouncer {
  #ended = new Map(); // by upload, so that one that was retried meanwhile is announced once
  #timer = 0;

  constructor(say) {
    this.say = say;
  }

  add(upload, document) {
    this.#ended.set(upload, document);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#announce(), BATCH_MS);
  }

  #announce() {
    const ended = [...this.#ended].filter(([upload]) => !upload.isActive);
    this.#ended.clear();
    if (ended.length <= 1) return ended.forEach(([upload, document]) => this.say(sentence(upload, document)));
    const done = ended.filter(([upload]) => ["done", "same"].includes(upload.state)).length;
    const others = ended.length - done;
    this.say(t(others ? "docEndedTogether" : "docAllRead", { done, others }));
  }
}

function sentence({ name, state, reason }, document) {
  if (state === "done") return t("docReadIn", { name, n: document.chunk_count });
  if (state === "same") return t("docSameNamed", { name });
  if (state === "cancelled") return t("docCancelledNamed", { name });
  return t("docFailedNamed", { name, why: t(...reason) });
}
