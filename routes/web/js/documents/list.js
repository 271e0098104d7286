/** The list of documents: paged, narrowed by the server, searched by name in what is loaded. */

import { listDocuments, listSources, listTags } from "../api/documents.js";
import { tell } from "../base/bus.js";
import { el, icon, setText } from "../base/dom.js";
import { reasonOf } from "../uploads/reasons.js";
import { factsOf, nameOf, tagsOf } from "./facts.js";

const ENOUGH = 20; // hits of a search: a screen is full of them

const plain = (text) => text.normalize("NFKC").toLowerCase();

export class DocumentList {
  #rows = new Map(); // document id → {document, element, searchable}
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
    const inSight = (entries) => entries.some((one) => one.isIntersecting) && this.#next && !this.#words && this.#more();
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

  /** Ids of the documents of the guide that came with Wenmai, where this reader may delete them. */
  get samples() {
    return this.#ofSample().filter((one) => this.on.mayChange(one)).map(({ document_id: id }) => id);
  }

  get hasSample() {
    return this.#ofSample().length > 0;
  }

  #ofSample() {
    return [...this.#rows.values()].map(({ document }) => document).filter((one) => one.sample);
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
    this.#searchOn();
    if (!this.#isFiltered) tell("documents-read", { document_ids: [...this.#rows.keys()] });
  }

  search(words) {
    this.#words = plain(words.trim());
    for (const row of this.#rows.values()) this.#sift(row);
    this.#tell();
    this.#searchOn();
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
    this.#more(); // or fewer would be counted than there are
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
    if (this.#next) this.#loading ??= this.#loadMore();
  }

  async #loadMore() {
    const round = this.#round;
    const page = await this.#read({ ...this.#filter, cursor: this.#next });
    this.#loading = null;
    if (!page) return;
    if (round === this.#round) this.#take(page);
    this.#searchOn();
  }

  /** What is looked for may be further down than what is loaded. */
  #searchOn() {
    if (this.#words && this.#shown.length < ENOUGH) this.#more();
  }

  get #shown() {
    return [...this.#rows.values()].filter(({ element }) => !element.hidden);
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
    const row = { document, element, searchable: plain([nameOf(document), ...(document.tags ?? [])].join("\n")) };
    this.#rows.set(document.document_id, row);
    this.#sift(row);
    return row;
  }

  #sift({ document, element, searchable }) {
    const isHeld = document.status === "ingesting" && this.#held.has(document.document_id);
    element.hidden = isHeld || !searchable.includes(this.#words);
  }

  /** What is below the list, and how many there are. */
  #tell() {
    if (!this.#isFiltered) this.on.count(this.size, this.#next !== null);
    const nothing = this.isNarrowed && !this.#next && !this.#shown.length;
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
    this.#isLoaded = false;
    this.#say("documentsFailed");
    this.#next = null;
    this.moreButton.hidden = false;
    setText(this.moreButton, "docLoadAgain");
  }
}

/* The rows of the list of documents. */

/** `mayChange`: whether this reader may delete it. */
function documentRow(document, { mayChange, onOpen, onRemove }) {
  const { document_id: id, status } = document;
  const name = nameOf(document);
  const open = el("button", { class: "document-open", type: "button", on: { click: onOpen } },
    el("span", { class: "document-name", text: name }),
    el("span", { class: "document-facts" }, ...factsOf(document), ...tagsOf(document)),
    state(document));
  const remove = mayChange && el("button", { class: "quiet document-remove", type: "button",
    label: ["docRemoveDocument", { name }], on: { click: onRemove } }, icon("trash"));
  return el("li", { class: "document", "data-id": id, "data-status": status }, icon("docs"), open, remove);
}

/** Nothing for what is simply there. A ready document with an error has a newer version that cannot be read. */
function state({ status, error }) {
  if (status === "ingesting") return el("span", { class: "document-state", i18n: "ingesting" });
  if (status === "failed") return el("span", { class: "document-state failed", i18n: reasonOf({ message: error ?? "" }) });
  return error && el("span", { class: "document-state failed", i18n: "docNewerRefused" });
}

/* Finding a document: its name as it is typed; state, folder and tag by asking the server. */

const STATES = ["ready", "ingesting", "failed"];

export class FilterBar {
  /** `onSearch(words)` at each key, `onFilter({status, source, tag})` at each choice. */
  constructor({ onSearch, onFilter }) {
    this.field = el("input", { type: "search", class: "document-search", label: "docSearchDocuments",
      "data-i18n-placeholder": "docSearchDocuments", autocomplete: "off", on: { input: () => onSearch(this.field.value) } });
    this.status = this.#choice("docAnyState", STATES.map((value) => el("option", { value, i18n: `docState_${value}` })), onFilter);
    this.source = this.#choice("docAnySource", [], onFilter);
    this.tag = this.#choice("docAnyTag", [], onFilter);
    this.element = el("div", { class: "document-filter", role: "search", label: "docSearchDocuments", hidden: true },
      el("span", { class: "search-box" }, icon("search"), this.field), this.status, this.source, this.tag);
  }

  get chosen() {
    const { status, source, tag } = this;
    return { status: status.value, source: source.value, tag: tag.value };
  }

  get isActive() {
    return Boolean(this.field.value || Object.values(this.chosen).some(Boolean));
  }

  /** What can be chosen now; a server that does not tell leaves its choice away. */
  async refresh() {
    const [sources, tags] = await Promise.all([listSources().catch(() => []), listTags().catch(() => null)]);
    if (tags) tell("tags-read", { tags: tags.map(({ tag }) => tag) });
    this.#offer(this.source, sources.map(({ source }) => source));
    this.#offer(this.tag, (tags ?? []).map(({ tag }) => tag));
  }

  #choice(any, options, onFilter) {
    return el("select", { label: any, hidden: !options.length, on: { change: () => onFilter(this.chosen) } },
      el("option", { value: "", i18n: any }), ...options);
  }

  /** A choice that was made stays, also when nothing has it any more. */
  #offer(select, values) {
    const { value } = select;
    const all = value && !values.includes(value) ? [...values, value] : values;
    select.replaceChildren(select.options[0], ...all.map((one) => el("option", { value: one, text: one })));
    select.value = value;
    select.hidden = !all.length;
  }
}
