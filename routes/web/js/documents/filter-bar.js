/** Finding a document: its name as it is typed; state, folder and tag by asking the server. */

import { el, icon } from "../base/dom.js";
import { listSources, listTags } from "../api/documents.js";
import { tell } from "../base/bus.js";

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
