/** The files on their way, above the list: a line that sums them up, and a row for each. */

import { el, setText } from "../base/dom.js";
import { UploadRow } from "./upload-row.js";

export class UploadList {
  #rows = new Map();

  /** `uploads` does what the rows' buttons ask for; `onEmptied` hears when the focus lost its row. */
  constructor(uploads, onEmptied) {
    Object.assign(this, { uploads, onEmptied });
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
      dismiss: () => this.uploads.dismiss(upload),
    });
    this.#rows.set(upload, row);
    this.list.append(row.element);
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
    for (const upload of [...this.#rows.keys()]) if (!upload.isGoing) this.uploads.dismiss(upload);
    this.onEmptied();
  }

  #sum() {
    const all = [...this.#rows.keys()];
    const going = all.filter((upload) => upload.isGoing).length;
    const failed = all.filter(({ state }) => state === "failed" || state === "refused").length;
    this.element.hidden = !all.length;
    this.clear.hidden = going === all.length;
    if (going) setText(this.summary, failed ? "docGoingAndFailed" : "docGoing", { n: going, failed });
    else setText(this.summary, failed ? "docSomeFailed" : "docUploadsEnded", { n: failed });
  }
}
