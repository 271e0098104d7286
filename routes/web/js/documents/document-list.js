/** The list of documents: paged, narrowed by the server, searched by name in what is loaded. */

import { el, setText } from "../base/dom.js";
import { documentRow } from "./document-rows.js";
import { listDocuments } from "../api/documents.js";
import { tell } from "../base/bus.js";

const plain = (text) => text.normalize("NFKC").toLowerCase();

export class DocumentList {
  #rows = new Map(); // document id → {document, element, said}
  #next = null;
  #filter = {};
  #words = "";
  #round = 0;
  #changes = 0;
  #loading = null;
  #isLoaded = false;
  #held = new Set();
  #sight;

  /**
   * `on`: `open(document)`, `remove(document)`, `mayChange(document)`, and `count(n, more)` after a change of
   * the whole, unnarrowed list.
   */
  constructor(scroller, on) {
    this.on = on;
    this.list = el("ul", { class: "document-list", role: "list", label: "documents" });
    this.note = el("p", { class: "faint list-note", hidden: true });
    this.moreButton = el("button", { class: "text-button list-more", type: "button", hidden: true,
      on: { click: () => (this.#next ? this.#more() : this.load()) } });
    this.element = el("div", {}, this.list, this.note, this.moreButton);
    const inSight = (seen) => seen.some((one) => one.isIntersecting) && this.#next && !this.#words && this.#more();
    this.#sight = new IntersectionObserver(inSight, { root: scroller, rootMargin: "600px" });
  }

  get isNarrowed() {
    return Boolean(this.#words) || this.#isFiltered;
  }

  get #isFiltered() {
    return Object.values(this.#filter).some(Boolean);
  }

  /** Whether an empty list means that there are none. */
  get isLoaded() {
    return this.#isLoaded;
  }

  get size() {
    return this.#rows.size;
  }

  /** The first page anew, of the documents that `filter` {status, source, tag} lets through. */
  async load(filter = this.#filter) {
    this.#filter = filter;
    const round = ++this.#round;
    const page = await this.#read(filter);
    if (round !== this.#round) return;
    if (!page) return this.#failed();
    this.#rows.clear();
    this.list.replaceChildren();
    this.#take(page);
    if (!this.#isFiltered) tell("documents-read", { document_ids: [...this.#rows.keys()] });
  }

  search(words) {
    this.#words = plain(words.trim());
    for (const row of this.#rows.values()) this.#sift(row);
    this.#tell();
  }

  /** A document that is new, or has changed. New ones come first. */
  put(document) {
    this.#changes += 1;
    const before = this.#rows.get(document.document_id);
    if (!before && this.#isFiltered) return; // whether it belongs here is the server's to say
    const row = this.#row(document);
    if (before) before.element.replaceWith(row.element);
    else this.list.prepend(row.element);
    row.element.classList.toggle("fresh", !before);
    this.#tell();
  }

  /** Takes a row away and hands its focus to its neighbour; false when there is none left. */
  drop(documentId) {
    this.#changes += 1;
    const row = this.#rows.get(documentId);
    if (!row) return true;
    const held = row.element.contains(document.activeElement) || document.activeElement === document.body;
    const shown = [...this.list.children].filter((element) => !element.hidden);
    const at = shown.indexOf(row.element);
    const next = shown[at + 1] ?? shown[at - 1];
    this.#rows.delete(documentId);
    row.element.remove();
    this.#tell();
    if (held) next?.querySelector(".document-open").focus();
    return Boolean(next) || !held;
  }

  focus(documentId) {
    this.#rows.get(documentId)?.element.querySelector(".document-open").focus({ preventScroll: true });
  }

  /** Those that are being read in have a row of their own, which says more. */
  hold(documentIds) {
    this.#held = new Set(documentIds);
    for (const row of this.#rows.values()) if (row.document.status === "ingesting") this.#sift(row);
  }

  /** null when it cannot be read. Again, twice at most, when something was deleted, say, meanwhile: the reply may be older. */
  async #read(page, tries = 3) {
    const [round, changes] = [this.#round, this.#changes];
    const reply = await listDocuments(page).catch(() => null);
    const isNew = !reply || round !== this.#round || changes === this.#changes;
    return isNew || tries === 1 ? reply : ((await this.#read(page, tries - 1)) ?? reply);
  }

  #more() {
    if (this.#next) this.#loading ??= this.#loadMore().finally(() => (this.#loading = null));
  }

  async #loadMore() {
    const round = this.#round;
    const page = await this.#read({ ...this.#filter, cursor: this.#next });
    if (page && round === this.#round) this.#take(page);
  }

  #take(page) {
    const rows = (page?.documents ?? []).filter(({ document_id: id }) => !this.#rows.has(id)).map((one) => this.#row(one));
    this.list.append(...rows.map(({ element }) => element));
    this.#next = page?.next ?? null;
    this.#isLoaded = true;
    this.#tell();
  }

  #row(document) {
    const element = documentRow(document, {
      mayChange: this.on.mayChange(document),
      onOpen: () => this.on.open(document),
      onRemove: () => this.on.remove(document),
    });
    const row = { document, element, said: plain([document.file_name, ...(document.tags ?? [])].join("\n")) };
    this.#rows.set(document.document_id, row);
    this.#sift(row);
    return row;
  }

  #sift({ document, element, said }) {
    const isHeld = document.status === "ingesting" && this.#held.has(document.document_id);
    element.hidden = isHeld || !said.includes(this.#words);
  }

  /** What is below the list, and how many there are. */
  #tell() {
    if (!this.#isFiltered) this.on.count(this.size, this.#next !== null);
    const nothing = this.isNarrowed && ![...this.#rows.values()].some(({ element }) => !element.hidden);
    this.#say(nothing ? "docNothingFits" : "");
    this.#offerMore();
  }

  /** Words for a reader; none hide them. */
  #say(key) {
    this.note.hidden = !key;
    if (key) setText(this.note, key);
  }

  #offerMore() {
    this.moreButton.hidden = !this.#next;
    if (this.#words) setText(this.moreButton, "docSearchOn", { n: this.size });
    else setText(this.moreButton, "more");
    this.#sight.unobserve(this.moreButton); // or a button that stays in sight is not seen again
    this.#sight.observe(this.moreButton);
  }

  #failed() {
    this.#say("documentsFailed");
    this.#next = null;
    this.moreButton.hidden = false;
    setText(this.moreButton, "docLoadAgain");
  }
}
