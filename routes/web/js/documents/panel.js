/** The documents panel: upload or drop files, follow their ingestion, list, open and delete documents. */

import { deleteDocument, readDocument } from "../api/documents.js";
import { identity } from "../api/http.js";
import { publish, subscribe } from "../base/bus.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el, icon, setLabel } from "../base/dom.js";
import { acceptDrops } from "../uploads/drops.js";
import { UploadAnnouncer, UploadList } from "../uploads/list.js";
import { Uploads } from "../uploads/queue.js";
import { reasonOfRequest } from "../uploads/reasons.js";
import { DocumentList, FilterBar } from "./list.js";
import { SampleNote } from "./sample.js";
import { DocumentView } from "./view.js";

/** Shared documents belong to the operator; without access keys, every user is the operator. */
const mayChange = ({ shared }) => !shared || !identity().Authorization;

export class DocumentsPanel {
  #view = null;
  #scroll = 0;
  #wasOpen = false; // before files were dragged over the page
  #isSettled = false; // the documents that a first start loads are there, or will not come

  /**
   * `onCount("3", hasSample, isSettled)` gets the number of documents ("100+" while not all are loaded), and whether
   * the sample can no longer appear; `onReading({n, done, total, isEmpty})` gets the number of files in progress, how
   * many of their passages are done, and whether there is nothing to ask about;
   * `announce(text)` speaks to screen readers while the panel is closed; `tray()` attaches the images among files
   * dropped outside the panel to the question, if the model can see them.
   */
  constructor(dialog, { onCount, onReading, announce, tray }) {
    Object.assign(this, { dialog, onCount, onReading, tray });
    this.live = el("p", { class: "offscreen", role: "status" });
    const announcer = new UploadAnnouncer((text) => (dialog.open ? (this.live.textContent = text) : announce(text)));
    this.uploads = new Uploads({
      onChange: (upload) => this.#changed(upload),
      onEnd: (upload, document) => this.#ended(upload, document, announcer),
      olderOf: (document) => this.list.olderOf(document),
    });
    this.#build();
    this.badges = new Badges(document.querySelectorAll(".open-documents"));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    acceptDrops({ onOver: (now, areImages) => this.#hover(now, areImages), onFiles: (files) => this.#dropped(files),
      onLeft: () => this.#wasOpen || dialog.close() });
    subscribe("upload", (files) => this.#upload(files));
    subscribe("document-deleted", ({ document_id: id }) => this.uploads.deleted(id));
  }

  #build() {
    const panel = this.dialog.querySelector(".panel");
    const zone = panel.querySelector(".drop-zone");
    this.input = zone.querySelector("input");
    this.input.addEventListener("change", () => this.#chosen());
    this.uploadList = new UploadList(this.uploads, {
      onRemove: ({ documentId, name, job }) => this.#remove({ document_id: documentId, file_name: name, chunk_count: job.total ?? 0 }),
      onReplace: (upload) => this.#removeOlder(upload),
      onEmptied: () => this.input.focus(),
    });
    this.notice = new Notice();
    this.empty = new EmptyState();
    this.sample = new SampleNote((removed) => this.#sampleRemoved(removed));
    this.filter = new FilterBar({ onSearch: (words) => this.list.search(words), onFilter: (chosen) => this.list.load(chosen) });
    this.list = new DocumentList(this.dialog, {
      open: (document) => this.#open(document), remove: (document) => this.#remove(document),
      mayChange, count: (n, more) => this.#counted(n, more),
    });
    this.home = el("section", { class: "documents-home" }, panel.querySelector(".documents-intro"), zone,
      this.uploadList.element, this.filter.element, this.sample.element, this.list.element, this.empty.element);
    panel.append(this.notice.element, this.home, this.live);
  }

  open() {
    if (!this.dialog.open) this.dialog.showModal();
    if (!this.#view) this.refresh();
    this.uploads.look();
    this.filter.refresh();
  }

  /** Opens a document at one of its passages; shows a message if it can no longer be read. */
  async openPassage(documentId, chunkId) {
    const document = await readDocument(documentId).catch(() => null);
    this.open();
    if (!document) return this.notice.show([["docUnreadable"]], true);
    this.#open(document);
    await this.#view.chunks.reach(chunkId);
  }

  refresh() {
    return this.list.load();
  }

  /** Loads documents and jobs after the page was opened, several times, because a server's first start soon loads the
   * sample (if there is one). */
  async begin() {
    for (const wait of [0, 1_500, 4_000]) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      await this.uploads.look();
      if (!this.list.size || !this.dialog.open) await this.refresh(); // do not reload under a user who has opened it
      if (this.list.size) break;
    }
    this.#isSettled = true;
    if (this.list.isLoaded && !this.list.size) this.#counted(0, false);
  }

  /** From /settings/public: the readable file extensions and the maximum file size. */
  set limits({ formats, max_upload_bytes: maxBytes }) {
    this.uploads.limits = { formats, maxBytes };
    if (!Array.isArray(formats)) return;
    this.input.accept = formats.join(",");
    this.empty.formats = formats;
  }

  #chosen() {
    const files = [...this.input.files];
    this.input.value = "";
    this.#add(files);
  }

  #add(files) {
    this.#goHome();
    this.notice.show([]);
    this.uploads.add(files);
  }

  #upload(files) {
    if (!files.length) return;
    this.open();
    this.#add(files);
  }

  async #dropped(files) {
    const isForQuestion = !this.#wasOpen && this.tray().canSee();
    const others = isForQuestion ? await this.tray().add(files) : files;
    if (isForQuestion && !others.length) this.dialog.close(); // Firefox tells the types of the files only now
    this.#upload(others);
  }

  /** Opens the panel, except for images that a question takes. */
  #hover(now, areImages) {
    this.dialog.classList.toggle("dropping", now);
    if (!now) return;
    this.#wasOpen = this.dialog.open;
    if (!this.#wasOpen && areImages && this.tray().canSee()) return;
    this.open();
    this.#goHome();
    this.dialog.scrollTo(0, 0);
  }

  #changed(upload) {
    this.uploadList.show(upload);
    const { active } = this.uploads;
    this.list.hold(active.map(({ documentId }) => documentId));
    this.#showEmpty();
    this.badges.show(active.length);
    this.#reportReading(active);
  }

  #reportReading(active) {
    const sum = (field) => active.reduce((total, { job }) => total + (job?.[field] ?? 0), 0);
    const isEmpty = this.#isSettled && this.#hasNone;
    this.onReading({ n: active.length, done: sum("done"), total: sum("total"), isEmpty });
  }

  #ended(upload, document, announcer) {
    announcer.add(upload, document);
    if (!document) return;
    this.list.put(document);
    if (this.#view?.document.document_id === document.document_id) this.#shownAnew(document);
  }

  #counted(n, more) {
    const { active } = this.uploads;
    const isSettled = this.#isSettled && !active.length;
    this.onCount(more ? `${Math.max(1, Math.floor(n / 100))}00+` : `${n}`, this.list.hasSample, isSettled);
    this.sample.show(this.list.samples);
    this.#showEmpty();
    this.#reportReading(active);
  }

  get #hasNone() {
    return this.list.size === 0 && !this.list.isNarrowed;
  }

  #showEmpty() {
    this.filter.element.hidden = this.#hasNone;
    this.empty.element.hidden = !this.#hasNone || !this.list.isLoaded || this.uploads.all.length > 0;
  }

  #open(document) {
    this.#scroll = this.dialog.scrollTop;
    this.notice.show([]);
    this.#show(document);
    this.dialog.scrollTo(0, 0);
    this.#view.title.focus();
  }

  #show(document) {
    this.#view?.element.remove();
    this.#view = new DocumentView(document, this.dialog, mayChange(document), {
      back: () => this.#goHome(),
      ask: ({ document_id: id, file_name: name }) => this.#hand("filter", { document_ids: [id], names: [name] }),
      remove: (current) => this.#remove(current),
      changed: (changed) => this.#learn(changed),
      quote: ({ file_name, text }) => this.#hand("quote", { file_name, text }),
      persona: ({ file_name, text, document_id, chunk_id }) => this.#hand("persona", { file_name, text, document_id, chunk_id }),
    });
    this.home.hidden = true;
    this.home.after(this.#view.element);
  }

  /** Redraws a document that was opened during its ingestion, with its passages. */
  #shownAnew(document) {
    const hadFocus = this.#view.element.contains(window.document.activeElement);
    this.#show(document);
    if (hadFocus) this.#view.title.focus();
  }

  /** Returns to the previous position in the list. */
  #goHome() {
    if (!this.#view) return;
    const { document } = this.#view;
    this.#view.element.remove();
    this.#view = null;
    this.home.hidden = false;
    this.dialog.scrollTo(0, this.#scroll);
    this.list.focus(document.document_id);
  }

  /** Closes the panel first; otherwise closing would take the focus back from where the event moved it. */
  #hand(name, detail) {
    this.dialog.close();
    publish(name, detail);
  }

  #learn(document) {
    this.list.put(document);
    this.filter.refresh();
  }

  async #sampleRemoved({ isDeleted, sentences }) {
    this.notice.show(sentences, !isDeleted);
    if (!isDeleted) return;
    await this.refresh();
    this.filter.refresh();
    this.input.focus();
  }

  /** Asks for each, and stops at the first that is kept. */
  async #removeOlder({ older }) {
    for (const document of older) if (!(await this.#remove(document))) return;
  }

  /** Whether it was deleted. */
  async #remove(document) {
    const removed = await removeDocument(document);
    if (!removed) return false;
    this.notice.show(removed.sentences, !removed.isDeleted);
    if (!removed.isDeleted) return false;
    if (this.#view?.document.document_id === document.document_id) this.#goHome();
    if (!this.list.drop(document.document_id)) this.input.focus();
    this.filter.refresh();
    return true;
  }
}

/** The number of files in progress, on the buttons that open the panel. */
class Badges {
  constructor(buttons) {
    this.badges = [...buttons].map((button) => {
      const badge = el("span", { class: "document-jobs", role: "img", hidden: true });
      button.append(badge);
      return badge;
    });
  }

  show(n) {
    for (const badge of this.badges) {
      badge.hidden = n === 0;
      badge.textContent = n;
      setLabel(badge, "docJobs", { n });
    }
  }
}

/** Shown instead of an empty list: which formats can be read, and where to begin. */
class EmptyState {
  constructor() {
    this.extensions = el("p", { class: "faint" });
    const all = el("details", { class: "original" }, el("summary", { i18n: "docAllFormats" }), this.extensions);
    this.element = el("div", { class: "no-documents", hidden: true },
      el("p", { i18n: "noDocuments" }), el("p", { class: "faint", i18n: "docReadable" }), all);
  }

  set formats(extensions) {
    this.extensions.textContent = extensions.join(" ");
  }
}

/** The outcome of the last action, shown until it is closed or replaced. */
class Notice {
  constructor() {
    this.text = el("p");
    const close = el("button", { class: "quiet", type: "button", label: "close", on: { click: () => this.show([]) } }, icon("close"));
    this.box = el("div", { class: "document-notice", hidden: true }, this.text, close);
    this.element = el("div", { class: "documents-report", role: "status" }, this.box);
  }

  /** `sentences` are [key, vars]. */
  show(sentences, isFailure = false) {
    this.box.hidden = !sentences.length;
    this.box.classList.toggle("failed", isFailure);
    this.text.replaceChildren(...sentences.map((sentence) => el("span", { i18n: sentence })));
  }
}

/* Deleting a document: confirmed first, then reported with what was deleted and checked. */

/**
 * Resolves to null if the user cancelled, otherwise to {isDeleted, sentences}: the [key, vars] of the sentences to
 * show in sequence.
 */
async function removeDocument(document) {
  const { document_id: id, file_name: name, chunk_count: n } = document;
  if (!(await confirmRemoval("deleteDocument", { name, n }))) return null;
  try {
    const sentences = report(document, await deleteDocument(id));
    publish("document-deleted", { document_id: id });
    return { isDeleted: true, sentences };
  } catch (error) {
    const isDeleted = error.status === 404; // somebody else deleted it first
    if (isDeleted) publish("document-deleted", { document_id: id });
    return { isDeleted, sentences: isDeleted ? [["docDeleted", { name, n }]] : [["docDeleteFailed", { name }], [reasonOfRequest(error)]] };
  }
}

function report({ file_name: name, chunk_count: n }, reply) {
  const { proof, source } = reply ?? {};
  const left = proof ? proof.hits : 0;
  const quoted = proof?.quoted_in?.length ?? 0;
  const copies = proof?.backups?.filter(({ holds }) => holds !== "no").length ?? 0;
  return [
    ["docDeleted", { name, n }],
    proof && (left ? ["docProofLeft", { n: left }] : proof.complete ? ["docProofClean"] : ["docProofPartial"]),
    quoted && ["docProofQuoted", { n: quoted }],
    copies && ["docProofBackups", { n: copies }],
    source && ["docComesBack", { source }],
  ].filter(Boolean);
}
