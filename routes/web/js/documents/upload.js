/** One file on its way into the knowledge base: what state it is in, as the rows show it. */

const AT_REST = new Set(["done", "same", "failed", "refused", "cancelled"]);
const ON_THE_WAY = new Set(["queued", "uploading"]);

/**
 * `state`: queued, uploading, checking (all bytes are sent, no reply yet), reading (`job` says how far), done,
 * same (these bytes are here already), failed, refused (was never sent), cancelling, cancelled.
 * `reason` is [key, vars] where it failed, `message` the server's own sentence.
 */
export class Upload {
  constructor(name, file = null) {
    Object.assign(this, { name, file, state: "queued", sent: 0, of: file?.size ?? 0, job: null, documentId: "" });
    this.forget();
  }

  /** As before its first try. */
  forget() {
    Object.assign(this, { reason: null, message: "", retryable: false, isOurs: false, abort: new AbortController() });
  }

  get isGoing() {
    return !AT_REST.has(this.state);
  }

  /** Closing the page would lose it. */
  get needsThisPage() {
    return ON_THE_WAY.has(this.state);
  }

  /** A job that was found, or a document that others read in, too, is not this page's to stop. */
  get canCancel() {
    return ["queued", "uploading", "checking"].includes(this.state) || (this.state === "reading" && this.isOurs);
  }

  get canRetry() {
    return (this.state === "failed" && this.retryable || this.state === "cancelled") && this.file !== null;
  }
}
