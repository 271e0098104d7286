/** The list of documents: paged and filtered by the server, searched by name among the loaded ones. */

import { listDocuments, listSources, listTags } from "../api/documents.js";
import { publish } from "../base/bus.js";
import { el, icon, setText } from "../base/dom.js";
import { reasonOf } from "../uploads/reasons.js";
import { factsOf, nameOf, tagsOf } from "./facts.js";

const ENOUGH_HITS = 20; // search hits that fill a screen

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
  #observer;

  /**
   * `on`: `open(document)`, `remove(document)`, `mayChange(document)`, and `count(n, more)`, called when the unfiltered
   * list changes.
   */
  constructor(scroller, on) {
    this.on = on;
    this.list = el("ul", { class: "document-list", role: "list", label: "documents" });
    this.note = el("p", { class: "faint list-note", hidden: true });
    this.moreButton = el("button", { class: "text-button list-more", type: "button", hidden: true,
      on: { click: () => (this.#next ? this.#more() : this.load()) } });
    this.element = el("div", {}, this.list, this.note, this.moreButton);
    const onIntersect = (entries) => entries.some((one) => one.isIntersecting) && this.#next && !this.#words && this.#more();
    this.#observer = new IntersectionObserver(onIntersect, { root: scroller, rootMargin: "600px" });
  }

  get isNarrowed() {
    return Boolean(this.#words) || this.#isFiltered;
  }

  get #isFiltered() {
    return Object.values(this.#filter).some(Boolean);
  }

  /** Whether an empty list means that there are no documents. */
  get isLoaded() {
    return this.#isLoaded;
  }

  get size() {
    return this.#rows.size;
  }

  /** The ids of the bundled guide's documents that this user may delete. */
  get samples() {
    return this.#ofSample().filter((one) => this.on.mayChange(one)).map(({ document_id: id }) => id);
  }

  get hasSample() {
    return this.#ofSample().length > 0;
  }

  #ofSample() {
    return [...this.#rows.values()].map(({ document }) => document).filter((one) => one.sample);
  }

  /** Reloads the first page of the documents that match `filter` {status, source, tag}. */
  async load(filter = this.#filter) {
    this.#filter = filter;
    const round = ++this.#round;
    const page = await this.#read(filter);
    if (round !== this.#round) return;
    if (!page) return this.#failed();
    this.#rows.clear();
    this.list.replaceChildren();
    this.#take(page);
    this.#continueSearch();
    if (!this.#isFiltered) publish("documents-read", { document_ids: [...this.#rows.keys()] });
  }

  search(words) {
    this.#words = plain(words.trim());
    for (const row of this.#rows.values()) this.#filterRow(row);
    this.#update();
    this.#continueSearch();
  }

  /** Adds or updates a document. New ones come first. */
  put(document) {
    this.#changes += 1;
    const before = this.#rows.get(document.document_id);
    if (!before && this.#isFiltered) return; // only the server knows whether it matches
    const row = this.#row(document);
    if (before) before.element.replaceWith(row.element);
    else this.list.prepend(row.element);
    row.element.classList.toggle("fresh", !before);
    this.#update();
  }

  /** Removes a row and moves its focus to a neighbour; returns false if there is none. */
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
    this.#more(); // otherwise the count would be too low
    this.#update();
    if (held) next?.querySelector(".document-open").focus();
    return Boolean(next) || !held;
  }

  focus(documentId) {
    this.#rows.get(documentId)?.element.querySelector(".document-open").focus({ preventScroll: true });
  }

  /** The ready documents of the same name that an upload may replace. Those on pages not loaded yet, or hidden by a filter
   * of the server's, are missed. */
  olderOf({ document_id: id, file_name: name, created_at: time }) {
    const isOlder = (one) => one.document_id !== id && one.file_name === name && one.status === "ready" &&
      !one.source && !one.sample && Date.parse(one.created_at) < Date.parse(time) && this.on.mayChange(one);
    return [...this.#rows.values()].map(({ document }) => document).filter(isOlder);
  }

  /** Hides documents being ingested that have a more detailed row among the uploads. */
  hold(documentIds) {
    this.#held = new Set(documentIds);
    for (const row of this.#rows.values()) if (row.document.status === "ingesting") this.#filterRow(row);
  }

  /** Loads a page, null on failure. Retries up to twice if the list changed meanwhile: the reply may be outdated. */
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
    this.#continueSearch();
  }

  /** Loads more pages while the search has too few hits. */
  #continueSearch() {
    if (this.#words && this.#shown.length < ENOUGH_HITS) this.#more();
  }

  get #shown() {
    return [...this.#rows.values()].filter(({ element }) => !element.hidden);
  }

  #take(page) {
    const rows = (page?.documents ?? []).filter(({ document_id: id }) => !this.#rows.has(id)).map((one) => this.#row(one));
    this.list.append(...rows.map(({ element }) => element));
    this.#next = page?.next ?? null;
    this.#isLoaded = true;
    this.#update();
  }

  #row(document) {
    const element = documentRow(document, {
      mayChange: this.on.mayChange(document),
      onOpen: () => this.on.open(document),
      onRemove: () => this.on.remove(document),
    });
    const row = { document, element, searchable: plain([nameOf(document), ...(document.tags ?? [])].join("\n")) };
    this.#rows.set(document.document_id, row);
    this.#filterRow(row);
    return row;
  }

  #filterRow({ document, element, searchable }) {
    const isHeld = document.status === "ingesting" && this.#held.has(document.document_id);
    element.hidden = isHeld || !searchable.includes(this.#words);
  }

  /** Updates the text below the list and reports the count. */
  #update() {
    if (!this.#isFiltered) this.on.count(this.size, this.#next !== null);
    const nothing = this.isNarrowed && !this.#next && !this.#shown.length;
    this.#say(nothing ? "docNothingFits" : "");
    this.#offerMore();
  }

  /** Shows a message below the list; "" hides it. */
  #say(key) {
    this.note.hidden = !key;
    if (key) setText(this.note, key);
  }

  #offerMore() {
    this.moreButton.hidden = !this.#next;
    if (this.#words) setText(this.moreButton, "docSearchOn", { n: this.size });
    else setText(this.moreButton, "more");
    this.#observer.unobserve(this.moreButton); // otherwise a button that stays visible would not be reported again
    this.#observer.observe(this.moreButton);
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

/** `mayChange`: whether this user may delete it. */
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

/** Nothing for an ordinary document. A ready document with an error has a newer version that cannot be read. */
function state({ status, error }) {
  if (status === "ingesting") return el("span", { class: "document-state", i18n: "ingesting" });
  if (status === "failed") return el("span", { class: "document-state failed", i18n: reasonOf({ message: error ?? "" }) });
  return error && el("span", { class: "document-state failed", i18n: "docNewerRefused" });
}

/* Finding documents: by name while typing; by state, folder and tag through the server. */

const STATES = ["ready", "ingesting", "failed"];

export class FilterBar {
  /** `onSearch(words)` is called on each input, `onFilter({status, source, tag})` on each selection. */
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

  /** Loads the available sources and tags; a select without options is hidden. */
  async refresh() {
    const [sources, tags] = await Promise.all([listSources().catch(() => []), listTags().catch(() => null)]);
    if (tags) publish("tags-read", { tags: tags.map(({ tag }) => tag) });
    this.#offer(this.source, sources.map(({ source }) => source));
    this.#offer(this.tag, (tags ?? []).map(({ tag }) => tag));
  }

  #choice(any, options, onFilter) {
    return el("select", { label: any, hidden: !options.length, on: { change: () => onFilter(this.chosen) } },
      el("option", { value: "", i18n: any }), ...options);
  }

  /** A selected value stays available even if no document has it any more. */
  #offer(select, values) {
    const { value } = select;
    const all = value && !values.includes(value) ? [...values, value] : values;
    select.replaceChildren(select.options[0], ...all.map((one) => el("option", { value: one, text: one })));
    select.value = value;
    select.hidden = !all.length;
  }
}
