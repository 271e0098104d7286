/** The documents panel: upload or drop, follow the reading, list, open, delete after asking. */

import { deleteDocument, readDocument } from "../api/documents.js";
import { identity } from "../api/http.js";
import { tell } from "../base/bus.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el, icon, setLabel } from "../base/dom.js";
import { acceptDrops } from "../uploads/drops.js";
import { Endings, UploadList } from "../uploads/list.js";
import { Uploads } from "../uploads/queue.js";
import { reasonOfRequest } from "../uploads/reasons.js";
import { DocumentList, FilterBar } from "./list.js";
import { SampleNote } from "./sample.js";
import { DocumentView } from "./view.js";

/** Shared documents are the operator's; where no key is asked for, that is whoever sits here. */
const mayChange = ({ shared }) => !shared || !identity().Authorization;

export class DocumentsPanel {
  #view = null;
  #scroll = 0;
  #isSettled = false; // what a start brings is there, or does not come

  /**
   * `onCount("3", hasSample, isSettled)` hears how many documents there are ("100+" while more are not read), and
   * whether a start may still bring the sample; `onReading({n, done, total, isEmpty})` how many files are on their way,
   * how many of their passages are done, and whether there is nothing to ask;
   * `announce(text)` tells it to a screen reader while the panel is closed; `takeImages(files)` gives back what of the
   * files that are dropped beside the panel is no image for a question.
   */
  constructor(dialog, { onCount, onReading, announce, takeImages }) {
    Object.assign(this, { dialog, onCount, onReading });
    this.live = el("p", { class: "offscreen", role: "status" });
    const endings = new Endings((text) => (dialog.open ? (this.live.textContent = text) : announce(text)));
    this.uploads = new Uploads({
      onChange: (upload) => this.#changed(upload),
      onEnd: (upload, document) => this.#ended(upload, document, endings),
    });
    this.#build();
    this.badges = new Badges(document.querySelectorAll(".open-documents"));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    const others = async (files) => (dialog.open ? files : takeImages(files));
    acceptDrops({ onOver: (now) => this.#hover(now), onFiles: async (files) => this.#add(await others(files)) });
  }

  #build() {
    const panel = this.dialog.querySelector(".panel");
    const zone = panel.querySelector(".drop-zone");
    this.input = zone.querySelector("input");
    this.input.addEventListener("change", () => this.#chosen());
    this.uploadList = new UploadList(this.uploads, {
      onRemove: ({ documentId, name, job }) => this.#remove({ document_id: documentId, file_name: name, chunk_count: job.total ?? 0 }),
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

  /** A document at one of its passages; a sentence instead where it cannot be read any more. */
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

  /** After the page was opened: what is there, and what is being read in. A first start soon brings the sample, or
   * there is none. */
  async begin() {
    for (const wait of [0, 1_500, 4_000]) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      await this.uploads.look();
      if (!this.list.size || !this.dialog.open) await this.refresh(); // who has opened it is somewhere in it
      if (this.list.size) break;
    }
    this.#isSettled = true;
    if (this.list.isLoaded && !this.list.size) this.#counted(0, false);
  }

  /** What /settings/public tells: which endings are read, and how large a file may be. */
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

  #hover(now) {
    this.dialog.classList.toggle("dropping", now);
    if (!now) return;
    this.open();
    this.#goHome();
    this.dialog.scrollTo(0, 0);
  }

  #changed(upload) {
    this.uploadList.show(upload);
    const { going } = this.uploads;
    this.list.hold(going.map(({ documentId }) => documentId));
    this.#showEmpty();
    this.badges.show(going.length);
    this.#tellReading(going);
  }

  #tellReading(going) {
    const sum = (field) => going.reduce((total, { job }) => total + (job?.[field] ?? 0), 0);
    const isEmpty = this.#isSettled && this.#hasNone;
    this.onReading({ n: going.length, done: sum("done"), total: sum("total"), isEmpty });
  }

  #ended(upload, document, endings) {
    endings.add(upload, document);
    if (!document) return;
    this.list.put(document);
    if (this.#view?.document.document_id === document.document_id) this.#shownAnew(document);
  }

  #counted(n, more) {
    const { going } = this.uploads;
    const isSettled = this.#isSettled && !going.length;
    this.onCount(more ? `${Math.max(1, Math.floor(n / 100))}00+` : `${n}`, this.list.hasSample, isSettled);
    this.sample.show(this.list.samples);
    this.#showEmpty();
    this.#tellReading(going);
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

  /** What was opened while it was read in has its passages now. */
  #shownAnew(document) {
    const hadFocus = this.#view.element.contains(window.document.activeElement);
    this.#show(document);
    if (hadFocus) this.#view.title.focus();
  }

  /** Back where the reader was in the list. */
  #goHome() {
    if (!this.#view) return;
    const { document } = this.#view;
    this.#view.element.remove();
    this.#view = null;
    this.home.hidden = false;
    this.dialog.scrollTo(0, this.#scroll);
    this.list.focus(document.document_id);
  }

  /** Closed first, or the focus would come back here from where it went. */
  #hand(name, detail) {
    this.dialog.close();
    tell(name, detail);
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

  async #remove(document) {
    const removed = await removeDocument(document);
    if (!removed) return;
    this.notice.show(removed.sentences, !removed.isDeleted);
    if (!removed.isDeleted) return;
    if (this.#view?.document.document_id === document.document_id) this.#goHome();
    if (!this.list.drop(document.document_id)) this.input.focus();
    this.filter.refresh();
  }
}

/** How many files are on their way, on the buttons that open the panel. */
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

/** What stands where the documents will: what can be read, and where to begin. */
class EmptyState {
  constructor() {
    this.endings = el("p", { class: "faint" });
    const all = el("details", { class: "original" }, el("summary", { i18n: "docAllFormats" }), this.endings);
    this.element = el("div", { class: "no-documents", hidden: true },
      el("p", { i18n: "noDocuments" }), el("p", { class: "faint", i18n: "docReadable" }), all);
  }

  set formats(endings) {
    this.endings.textContent = endings.join(" ");
  }
}

/** What was just done, in quiet sentences that stay until they are closed or followed by others. */
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

/* Deleting a document: asked first, and said afterwards what went and what was checked. */

/**
 * Resolves to null when the reader thought better of it, else to {isDeleted, sentences}: [key, vars] of
 * sentences to show one after the other.
 */
async function removeDocument(document) {
  const { document_id: id, file_name: name, chunk_count: n } = document;
  if (!(await confirmRemoval("deleteDocument", { name, n }))) return null;
  try {
    const sentences = report(document, await deleteDocument(id));
    tell("document-deleted", { document_id: id });
    return { isDeleted: true, sentences };
  } catch (error) {
    const isDeleted = error.status === 404; // somebody else was quicker
    if (isDeleted) tell("document-deleted", { document_id: id });
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
