/** What the questions of this conversation are limited to, always in view as chips that can be taken away. */

import { readFileName } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { hear } from "../base/bus.js";
import { el, icon } from "../base/dom.js";
import { language } from "../base/i18n.js";

/** As many as a request takes. */
export const MOST = { tags: 32, sources: 32, documents: 100 };
const LISTS = ["tags", "sources", "documents"];
const nothing = () => ({ tags: [], sources: [], documents: [], since: "", until: "" });

export class Filters {
  #now = nothing();
  element = el("div", { class: "filters", role: "group", label: "filtersNow", hidden: true });

  /** `onChange(state)` gets null when nothing limits. A state: {tags, sources, documents: [{id, name}], since, until}. */
  constructor(onChange) {
    this.onChange = onChange;
  }

  get now() {
    return this.#now;
  }

  get empty() {
    return !this.#now.since && !this.#now.until && LISTS.every((list) => !this.#now[list].length);
  }

  /** The request's `filters`; null when nothing limits. */
  get request() {
    const { documents, ...rest } = this.#now;
    const all = { ...rest, document_ids: documents.map(({ id }) => id) };
    return this.empty ? null : Object.fromEntries(Object.entries(all).filter(([, part]) => part.length));
  }

  /** Another conversation's limits, or null. */
  show(state) {
    this.#now = { ...nothing(), ...state };
    this.#draw();
  }

  change(part) {
    this.show({ ...this.#now, ...part });
    this.onChange(this.empty ? null : this.#now);
  }

  /** One tag or source more, or less. */
  set(list, name, on) {
    const others = this.#now[list].filter((other) => other !== name);
    this.change({ [list]: on ? [...others, name] : others });
  }

  clear() {
    this.change(nothing());
  }

  /** The bus's "filter": what is given takes the place of what was there. */
  limit({ tags, document_ids: ids, names = [] }) {
    const documents = ids?.slice(0, MOST.documents).map((id, at) => ({ id, name: names[at] ?? "" }));
    this.change({ ...(tags ? { tags: tags.slice(0, MOST.tags) } : {}), ...(documents ? { documents } : {}) });
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

/* Takes limits away that nothing meets any more, and says so: of deleted documents, and of tags that none has. */

const MOST_TAGS = 200; // that the server lists; of so many, one that is missing may be there

export class StaleLimits {
  #existing = null; // ids of documents; null until their list was read

  /** `say(key, vars)` tells the reader. */
  constructor(filters, say) {
    Object.assign(this, { filters, say });
    hear("document-deleted", ({ document_id: id }) => this.#deleted(id));
    hear("documents-read", ({ document_ids: ids }) => {
      this.#existing = new Set(ids);
      this.look();
    });
    hear("tags-read", ({ tags }) => this.#keepTags(tags));
  }

  /** To be called when other limits are shown. The list may have more documents than were read: the server is asked. */
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
    this.#tell("documentLimitStale", stale.map(({ id, name }) => name || id));
  }

  #keepTags(all) {
    const { tags } = this.filters.now;
    const stale = all.length < MOST_TAGS ? tags.filter((tag) => !all.includes(tag)) : [];
    if (!stale.length) return;
    this.filters.change({ tags: tags.filter((tag) => !stale.includes(tag)) });
    this.#tell("tagLimitStale", stale);
  }

  /** That everything is searched now must be said. */
  #tell(key, names) {
    const named = names.join(language() === "zh" ? "”、“" : "”, “");
    this.say(this.filters.empty ? `${key}All` : key, { n: names.length, names: named });
  }
}

/** Not reached is not gone. */
async function isDeleted(documentId) {
  try {
    await readFileName(documentId);
    return false;
  } catch (error) {
    return error instanceof ApiError && error.status === 404;
  }
}
