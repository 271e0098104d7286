/** What the questions of this conversation are limited to, always in view as chips that can be taken away. */

import { readFileName } from "../api/persona.js";
import { el, icon } from "../base/dom.js";

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
