/** The filters on this conversation's questions, always visible as removable chips. */

import { readFileName } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { subscribe } from "../base/bus.js";
import { el, icon } from "../base/dom.js";
import { language } from "../base/i18n.js";

/** The API's limits per request. */
export const MAX_FILTERS = { tags: 32, sources: 32, documents: 100 };
const LISTS = ["tags", "sources", "documents"];
const nothing = () => ({ tags: [], sources: [], documents: [], since: "", until: "" });

export class Filters {
  #now = nothing();
  element = el("div", { class: "filters", role: "group", label: "filtersNow", hidden: true });

  /** `onChange(state)` gets null if there are no filters. A state: {tags, sources, documents: [{id, name}], since, until}. */
  constructor(onChange) {
    this.onChange = onChange;
  }

  get now() {
    return this.#now;
  }

  get empty() {
    return !this.#now.since && !this.#now.until && LISTS.every((list) => !this.#now[list].length);
  }

  /** The request's `filters`; null if there are none. */
  get request() {
    const { documents, ...rest } = this.#now;
    const all = { ...rest, document_ids: documents.map(({ id }) => id) };
    return this.empty ? null : Object.fromEntries(Object.entries(all).filter(([, part]) => part.length));
  }

  /** Shows another conversation's filters; null for none. */
  show(state) {
    this.#now = { ...nothing(), ...state };
    this.#draw();
  }

  change(part) {
    this.show({ ...this.#now, ...part });
    this.onChange(this.empty ? null : this.#now);
  }

  /** Adds or removes one tag or source. */
  set(list, name, on) {
    const others = this.#now[list].filter((other) => other !== name);
    this.change({ [list]: on ? [...others, name] : others });
  }

  clear() {
    this.change(nothing());
  }

  /** Handles the "filter" event: each list given replaces the current one. */
  limit({ tags, document_ids: ids, names = [] }) {
    const documents = ids?.slice(0, MAX_FILTERS.documents).map((id, at) => ({ id, name: names[at] ?? "" }));
    this.change({ ...(tags ? { tags: tags.slice(0, MAX_FILTERS.tags) } : {}), ...(documents ? { documents } : {}) });
    for (const document of documents ?? []) if (!document.name) this.#name(document);
  }

  async #name({ id }) {
    const name = await readFileName(id).catch(() => "");
    const named = this.#now.documents.map((other) => (other.id === id ? { id, name: name || id } : other));
    if (this.#now.documents.some((other) => other.id === id)) this.change({ documents: named });
  }

  #draw() {
    const held = this.element.contains(document.activeElement);
    const { tags, sources, documents, since, until } = this.#now;
    const chips = [
      ...documents.map(({ id, name }) => chip(name || "…", () => this.change({ documents: documents.filter((other) => other.id !== id) }))),
      ...tags.map((tag) => chip(`#${tag}`, () => this.set("tags", tag, false))),
      ...sources.map((source) => chip(source, () => this.set("sources", source, false), "filterSource")),
      ...(since ? [chip(since, () => this.change({ since: "" }), "onlySince")] : []),
      ...(until ? [chip(until, () => this.change({ until: "" }), "onlyUntil")] : []),
    ];
    const all = el("button", { class: "text-button", type: "button", i18n: "filtersClear", on: { click: () => this.clear() } });
    this.element.replaceChildren(el("span", { class: "faint", i18n: "filtersOnly" }), ...chips, ...(chips.length > 1 ? [all] : []));
    this.element.hidden = !chips.length;
    if (held) (this.element.querySelector("button") ?? document.querySelector("#question")).focus();
  }
}

function chip(name, onRemove, key = "filterName") {
  return el("button", { class: "chip", type: "button", label: ["filterRemove", { name }], on: { click: onRemove } },
    el("span", { i18n: [key, { name }] }), icon("close"));
}

/* Removes filters that no longer match anything (deleted documents, unused tags) and tells the user. */

const MAX_LISTED_TAGS = 200; // the server's limit on the list; at the limit, an unlisted tag may still exist

export class StaleLimits {
  #existing = null; // document ids; null until the list was loaded

  /** `say(key, vars)` shows a note. */
  constructor(filters, say) {
    Object.assign(this, { filters, say });
    subscribe("document-deleted", ({ document_id: id }) => this.#deleted(id));
    subscribe("documents-read", ({ document_ids: ids }) => {
      this.#existing = new Set(ids);
      this.look();
    });
    subscribe("tags-read", ({ tags }) => this.#keepTags(tags));
    document.addEventListener("visibilitychange", () => document.hidden || this.#lookAgain());
  }

  /** Another tab may have deleted a document that this one has listed. */
  #lookAgain() {
    for (const { id } of this.filters.now.documents) this.#existing?.delete(id);
    return this.look();
  }

  /** Call when other filters are shown. There may be more documents than were listed, so unlisted ones are looked up. */
  async look() {
    const unseen = this.#existing && this.filters.now.documents.filter(({ id }) => !this.#existing.has(id));
    const asked = await Promise.all((unseen ?? []).map(async ({ id }) => ((await isDeleted(id)) ? id : this.#existing.add(id) && "")));
    this.#dropDocuments(asked.filter(Boolean));
  }

  #deleted(id) {
    this.#existing?.delete(id);
    this.#dropDocuments([id]);
  }

  #dropDocuments(ids) {
    const { documents } = this.filters.now;
    const stale = documents.filter(({ id }) => ids.includes(id));
    if (!stale.length) return;
    this.filters.change({ documents: documents.filter((one) => !stale.includes(one)) });
    this.#report("documentLimitStale", stale.map(({ id, name }) => name || id));
  }

  #keepTags(all) {
    const { tags } = this.filters.now;
    const stale = all.length < MAX_LISTED_TAGS ? tags.filter((tag) => !all.includes(tag)) : [];
    if (!stale.length) return;
    this.filters.change({ tags: tags.filter((tag) => !stale.includes(tag)) });
    this.#report("tagLimitStale", stale);
  }

  /** Tells the user, in particular when all documents are searched now. */
  #report(key, names) {
    const named = names.join(language() === "zh" ? "”、“" : "”, “");
    this.say(this.filters.empty ? `${key}All` : key, { n: names.length, names: named });
  }
}

/** An unreachable server does not mean that the document is deleted. */
async function isDeleted(documentId) {
  try {
    await readFileName(documentId);
    return false;
  } catch (error) {
    return error instanceof ApiError && error.status === 404;
  }
}
