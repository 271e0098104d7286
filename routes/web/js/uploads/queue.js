/** The upload queue: sends three files at a time and follows each until it is ingested. */

import { deleteDocument, readDocument, uploadDocument } from "../api/documents.js";
import { formatBytes } from "../base/i18n.js";
import { nameOf } from "../documents/facts.js";
import { JobWatcher } from "./jobs.js";
import { reasonOf, reasonOfRequest } from "./reasons.js";

const MAX_PARALLEL = 3;
const PASSING = new Set([408, 429, 500, 502, 503, 504, 507]);

export class Uploads {
  #all = new Set();
  #queue = [];
  #sending = 0;

  /** The server's limits, `maxBytes` and `formats`; empty until known. */
  limits = {};

  /**
   * `onChange(upload)` after every change; `onEnd(upload, document)` at the end, with the document if it was ingested;
   * `olderOf(document)` returns the documents that it may replace.
   */
  constructor({ onChange, onEnd, olderOf }) {
    Object.assign(this, { onChange, onEnd, olderOf });
    this.watcher = new JobWatcher((job) => this.#adopt(job));
    addEventListener("beforeunload", (event) => {
      if (this.all.some((upload) => upload.needsThisPage)) event.preventDefault();
    });
  }

  get all() {
    return [...this.#all];
  }

  get active() {
    return this.all.filter((upload) => upload.isActive);
  }

  has(upload) {
    return this.#all.has(upload);
  }

  add(files) {
    for (const file of files) {
      const upload = new Upload(file.name, file);
      this.#all.add(upload);
      const refusal = refusalOf(file, this.limits);
      if (refusal) this.#end(upload, "refused", { reason: refusal });
      else this.#enqueue(upload);
    }
  }

  /** Looks for jobs that were started by others or before this page was opened. */
  async look() {
    await this.watcher.look().catch(() => {});
  }

  retry(upload) {
    upload.forget();
    this.#enqueue(upload);
  }

  dismiss(upload) {
    this.#all.delete(upload);
    this.onChange(upload);
  }

  /** A deleted document replaces nothing and needs no replacement. */
  deleted(documentId) {
    for (const upload of this.all.filter(({ older }) => older.length)) {
      const isLeft = (one) => ![one.document_id, upload.documentId].includes(documentId);
      upload.older = upload.older.filter(isLeft);
      if (!upload.older.length) this.dismiss(upload);
    }
  }

  /** Cancels an upload; one that has reached the server is deleted, even if its reply is still pending. */
  async cancel(upload) {
    const { state } = upload;
    if (state === "queued") this.#queue = this.#queue.filter((other) => other !== upload);
    if (state === "queued") return this.#end(upload, "cancelled");
    this.#set(upload, { state: "cancelling" });
    if (state === "uploading") upload.abort.abort();
    if (state === "reading") await this.#withdraw(upload);
  }

  /** Shows a job found on the server, unless it may belong to one of this page's uploads whose reply is pending. */
  #adopt(job) {
    const isKnown = ({ documentId, state, name }) =>
      documentId === job.document_id || (["checking", "cancelling"].includes(state) && name === job.file_name);
    if (this.all.some(isKnown)) return;
    const upload = Object.assign(new Upload(nameOf(job)), { documentId: job.document_id });
    this.#all.add(upload);
    this.#follow(upload, job);
  }

  #enqueue(upload) {
    this.#set(upload, { state: "queued" });
    this.#queue.push(upload);
    this.#pump();
  }

  async #pump() {
    while (this.#sending < MAX_PARALLEL && this.#queue.length) {
      this.#sending += 1;
      this.#send(this.#queue.shift()).finally(() => {
        this.#sending -= 1;
        this.#pump();
      });
    }
  }

  async #send(upload) {
    this.#set(upload, { state: "uploading", sent: 0 });
    const onProgress = (sent, of) => this.#progress(upload, sent, of);
    try {
      const reply = await uploadDocument(upload.file, { onProgress, signal: upload.abort.signal });
      await this.#accepted(upload, reply);
    } catch (error) {
      if (upload.abort.signal.aborted) return this.#end(upload, "cancelled");
      const retryable = error.retryable || error instanceof TypeError || PASSING.has(error.status);
      this.#end(upload, "failed", { reason: [reasonOfRequest(error)], message: error.status ? error.message : "", retryable });
    }
  }

  #progress(upload, sent, of) {
    if (!["uploading", "checking"].includes(upload.state)) return;
    this.#set(upload, { sent, of, state: sent < of ? "uploading" : "checking" });
  }

  async #accepted(upload, { document, job_id: jobId, existing }) {
    const cancelled = upload.state === "cancelling";
    const shown = this.all.filter((other) => !other.file && other.isActive && other.documentId === document.document_id);
    shown.forEach((other) => this.dismiss(other)); // this upload follows the same job
    Object.assign(upload, { documentId: document.document_id, isOurs: !existing });
    if (cancelled && upload.isOurs) return this.#withdraw(upload);
    if (!jobId) return this.#end(upload, "same", {}, document);
    this.#follow(upload, { job_id: jobId, stage: "waiting" });
  }

  #follow(upload, job) {
    this.#set(upload, { state: "reading", job });
    this.watcher.watch(job.job_id, (change) => this.#jobChanged(upload, change));
  }

  async #withdraw(upload) {
    try {
      await deleteDocument(upload.documentId);
      this.#end(upload, "cancelled");
    } catch (error) {
      if (error.status === 404) return this.#end(upload, "cancelled");
      this.#end(upload, "failed", { reason: [reasonOfRequest(error)], message: error.message });
    }
  }

  #jobChanged(upload, job) {
    if (upload.state === "cancelling" || !this.#all.has(upload)) return;
    const { stage, error: message, error_code: code, retryable } = job;
    if (stage === "failed") this.#end(upload, "failed", { reason: [reasonOf({ code, message })], message, retryable });
    else if (stage === "cancelled") this.#end(upload, "cancelled");
    else if (["done", "missing"].includes(stage)) this.#look(upload, job);
    else this.#set(upload, { state: "reading", job: stage === "lost" ? { ...upload.job, stage } : job });
  }

  /** Checks the document for the outcome. An unknown job may belong to another process and still be running. */
  async #look(upload, job) {
    try {
      const document = await readDocument(upload.documentId);
      if (document.status === "ingesting") return this.#follow(upload, { ...upload.job, job_id: job.job_id });
      if (document.status === "ready") return this.#end(upload, "done", {}, document);
      this.#end(upload, "failed", { reason: [reasonOf({ message: document.error })], message: document.error });
    } catch (error) {
      if (error.status === 404) return this.#end(upload, "cancelled");
      this.#end(upload, "failed", { reason: [reasonOfRequest(error)], message: error.message });
    }
  }

  #end(upload, state, more = {}, document = null) {
    if (state === "done" && upload.isOurs) upload.older = this.olderOf(document);
    if (state === "done" && !upload.older.length) this.#all.delete(upload);
    this.#set(upload, { ...more, state });
    this.onEnd(upload, document);
  }

  #set(upload, changes) {
    Object.assign(upload, changes);
    this.onChange(upload);
  }
}

/* A file in progress, with its state as the rows show it. */

const AT_REST = new Set(["done", "same", "failed", "refused", "cancelled"]);
const ON_THE_WAY = new Set(["queued", "uploading"]);

/**
 * `state`: queued, uploading, checking (all bytes sent, no reply yet), reading (`job` has the progress), done, same (the
 * same bytes are already there), failed, refused (never sent), cancelling, cancelled.
 * `reason` is [key, vars] if it failed, `message` the server's own sentence. `older`: the documents of the same name that
 * are still beside it once it is done.
 */
class Upload {
  constructor(name, file = null) {
    Object.assign(this, { name, file, state: "queued", sent: 0, of: file?.size ?? 0, job: null, documentId: "" });
    this.forget();
  }

  /** Resets the outcome for another try. */
  forget() {
    Object.assign(this, { reason: null, message: "", retryable: false, isOurs: false, older: [], abort: new AbortController() });
  }

  get isActive() {
    return !AT_REST.has(this.state);
  }

  /** Whether closing the page would lose the upload. */
  get needsThisPage() {
    return ON_THE_WAY.has(this.state);
  }

  /** Jobs found on the server, and documents that others uploaded, too, cannot be cancelled from here. */
  get canCancel() {
    return ["queued", "uploading", "checking"].includes(this.state) || (this.state === "reading" && this.isOurs);
  }

  /** Documents of others or of a closed page are deleted like any document, after confirmation. */
  get canRemove() {
    return this.state === "reading" && !this.isOurs;
  }

  get canRetry() {
    return (this.state === "failed" && this.retryable || this.state === "cancelled") && this.file !== null;
  }
}

/* Files that are not sent because the server would not read them. */

const FORM_BYTES = 2_000; // the overhead of the form
// Common formats that the server cannot read, by the format that their own programs can save them as.
const SAVE_AS = new Map(Object.entries({
  DOCX: "doc dot wps wpt rtf odt ott fodt pages hwp hwpx wpd",
  XLSX: "xls xlsb xlt et ett ods ots fods numbers dif dbf mdb accdb",
  PPTX: "ppt pps pot dps dpt odp otp fodp key",
  HTML: "webarchive",
  EPUB: "mobi azw azw3 fb2",
  EML: "msg oft mbox pst",
  PDF: "caj ofd djvu ps xps oxps one pub vsd vsdx mpp xmind",
}).flatMap(([better, endings]) => endings.split(" ").map((ending) => [`.${ending}`, better])));
const PICTURES = new Set(".png .jpg .jpeg .gif .bmp .webp .tif .tiff .heic .heif .avif .jfif".split(" "));
const RECOGNISED = ".jpg"; // readable where text recognition is installed
const PACKED = new Set(".zip .rar .7z .tar .gz .tgz .bz2 .xz".split(" "));

/**
 * Why a file is not sent, as [key, vars]; null if it may be sent. `limits`: `maxBytes`, and `formats`, the readable
 * extensions; undefined if unknown. A name without an extension says nothing about the format.
 */
function refusalOf({ name, size }, { maxBytes, formats }) {
  const ending = /.\.[^./\\]*$/.exec(name)?.[0].slice(1).toLowerCase() ?? "";
  if (maxBytes && size + FORM_BYTES > maxBytes) {
    return ["docFileTooLarge", { size: formatBytes(size), most: formatBytes(maxBytes) }];
  }
  if (size === 0) return ["docWhyEmpty"];
  if (!formats || ending.length < 2 || formats.includes(ending)) return null;
  if (PICTURES.has(ending) && !formats.includes(RECOGNISED)) return ["docFilePicture", { ending }];
  if (PACKED.has(ending)) return ["docFilePacked", { ending }];
  const better = PICTURES.has(ending) ? "JPG" : SAVE_AS.get(ending);
  return better ? ["docFileSaveAs", { ending, better }] : ["docFileKind", { ending }];
}
