/** The documents panel: upload or drop, follow the reading, list, delete after asking. */

import { deleteDocument, listDocuments, uploadDocument } from "./api.js";
import { confirmRemoval } from "./dialogs.js";
import { documentRow, showFailure, showProgress, uploadRow } from "./document-rows.js";
import { el } from "./dom.js";
import { followJob } from "./jobs.js";

export class DocumentsPanel {
  #uploads = new Map();
  #documents = [];
  #next = null;

  /** `onCount("3")` hears how many documents there are ("100+" when that is only the first page). */
  constructor(dialog, { onCount }) {
    Object.assign(this, { dialog, onCount });
    this.list = dialog.querySelector(".document-list");
    this.input = dialog.querySelector("input[type=file]");
    this.input.addEventListener("change", () => this.#chosen());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    this.#acceptDrops();
  }

  open() {
    if (!this.dialog.open) this.dialog.showModal();
    this.refresh();
  }

  /** File name endings that the server can read, as the file chooser should offer them. */
  set formats(endings) {
    if (Array.isArray(endings)) this.input.accept = endings.join(",");
  }

  async refresh() {
    try {
      const page = await listDocuments();
      this.#documents = page?.documents ?? [];
      this.#next = page?.next ?? null;
      this.onCount(`${this.#documents.length}${this.#next ? "+" : ""}`);
      this.#draw();
    } catch {
      this.list.replaceChildren(el("p", { class: "faint", i18n: "documentsFailed" }));
    }
  }

  #chosen() {
    this.#upload([...this.input.files]);
    this.input.value = "";
  }

  /** One after the other: the server reads them in turn anyway. */
  async #upload(files) {
    for (const file of files) this.#uploads.set(file, uploadRow(file.name));
    this.#draw();
    for (const file of files) await this.#uploadOne(file, this.#uploads.get(file));
  }

  async #uploadOne(file, row) {
    try {
      const { job_id: jobId } = (await uploadDocument(file)) ?? {};
      if (jobId) await followJob(jobId, (job) => showProgress(row, job));
      this.#uploads.delete(file);
    } catch (error) {
      showFailure(row, error.message, () => this.#dismiss(file));
    }
    await this.refresh();
  }

  #dismiss(file) {
    this.#uploads.delete(file);
    this.#draw();
  }

  #draw() {
    const rows = this.#documents.map((document) => documentRow(document, () => this.#remove(document)));
    this.list.replaceChildren(...[...this.#uploads.values()].map(({ element }) => element), ...rows);
    if (this.#next) this.list.append(this.#moreButton());
    if (!this.list.childElementCount) this.list.append(el("p", { class: "faint", i18n: "noDocuments" }));
  }

  #moreButton() {
    const load = async () => {
      const page = await listDocuments(this.#next).catch(() => null);
      this.#documents.push(...(page?.documents ?? []));
      this.#next = page?.next ?? null;
      this.#draw();
    };
    return el("li", {}, el("button", { class: "text-button", type: "button", i18n: "more", on: { click: load } }));
  }

  async #remove(document) {
    if (!(await confirmRemoval("deleteDocument", { name: document.file_name }))) return;
    await deleteDocument(document.document_id).catch(() => {});
    await this.refresh();
  }

  #acceptDrops() {
    const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
    const over = (event, on) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      this.dialog.classList.toggle("dropping", on);
      if (on) this.open();
    };
    addEventListener("dragenter", (event) => !this.dialog.open && over(event, true));
    addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
    addEventListener("dragleave", (event) => !event.relatedTarget && this.dialog.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      over(event, false);
      if (carriesFiles(event)) this.#upload([...event.dataTransfer.files]);
    });
  }
}
