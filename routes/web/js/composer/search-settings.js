/** A small panel over the box: how many passages the model is shown, and the filters. */

import { listSources, listTags } from "../api/documents.js";
import { publish } from "../base/bus.js";
import { el, setText } from "../base/dom.js";
import { translate } from "../base/i18n.js";
import { readPref, writePref } from "../base/prefs.js";
import { MAX_FILTERS } from "./filters.js";

const DEFAULT_TOP_N = 10;
const MAX_TOP_N = 50;

export class SearchSettings {
  #topN = bounded(readPref("rerank_top_n"));
  #words = el("span");
  #opened = 0;
  #panel = el("div", { id: "search-settings", class: "search-settings", role: "dialog", label: "searchSettings", hidden: true });
  button = el("button", { class: "switch", id: "search-settings-button", type: "button", "aria-expanded": "false",
    "aria-controls": "search-settings", on: { click: () => this.close() || this.#open() } }, this.#words);

  constructor(form, filters) {
    this.filters = filters;
    form.append(this.#panel);
    this.#panel.addEventListener("keydown", (event) => this.#key(event));
    this.#panel.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && this.#outside(relatedTarget));
    document.addEventListener("pointerdown", ({ target }) => this.#outside(target));
    this.#say();
  }

  /** null if it is the server's default. */
  get topN() {
    return this.#topN === DEFAULT_TOP_N ? null : this.#topN;
  }

  /** Closes the panel; returns whether it was open. */
  close() {
    const open = !this.#panel.hidden;
    const held = this.#panel.contains(document.activeElement);
    this.#panel.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    if (held) this.button.focus();
    return open;
  }

  async #open() {
    const opened = ++this.#opened;
    this.#panel.replaceChildren(this.#passages(), this.#dates());
    this.#panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.#panel.querySelector("input").focus();
    const [tags, sources] = await Promise.all([listTags().catch(() => null), listSources().catch(() => [])]);
    if (tags) publish("tags-read", { tags: tags.map(({ tag }) => tag) });
    if (!this.#panel.hidden && opened === this.#opened) this.#offer(tags ?? [], sources);
  }

  #offer(tags, sources) {
    const picker = (list, title, items) => items.length > 0 && checkChips({ title, items, most: MAX_FILTERS[list],
      chosen: this.filters.now[list], onToggle: (name, on) => this.filters.set(list, name, on) });
    const pickers = [
      picker("tags", "pickTags", tags.map(({ tag, documents }) => ({ name: tag, count: documents }))),
      picker("sources", "pickSources", sources.map(({ source, documents }) => ({ name: source, count: documents }))),
    ].filter(Boolean);
    this.#panel.querySelector(".passages").after(...pickers);
    for (const node of this.#panel.querySelectorAll("[data-i18n-placeholder]")) translate(node);
  }

  #passages() {
    const count = el("output", { i18n: ["passagesCount", { n: this.#topN }] });
    const range = el("input", { type: "range", min: 1, max: MAX_TOP_N, value: this.#topN, label: "passages" });
    range.addEventListener("input", () => {
      this.#topN = bounded(range.value);
      writePref("rerank_top_n", String(this.#topN));
      setText(count, "passagesCount", { n: this.#topN });
      this.#say();
    });
    return el("div", { class: "passages" }, el("span", { i18n: "passages" }), range, count);
  }

  /** The date chosen last wins: if the other one contradicts it, that one is visibly cleared. */
  #dates() {
    const field = (name, label) => el("input", { type: "date", name, value: this.filters.now[name], label,
      on: { change: ({ target }) => this.#date(name, target.value) } });
    return el("fieldset", { class: "picker dates" }, el("legend", { i18n: "pickDates" }),
      field("since", "dateSince"), el("span", { text: "–" }), field("until", "dateUntil"));
  }

  #date(name, value) {
    const other = name === "since" ? "until" : "since";
    const { since, until } = { ...this.filters.now, [name]: value };
    const crossed = since && until && since > until;
    this.filters.change({ [name]: value, ...(crossed ? { [other]: "" } : {}) });
    if (crossed) this.#panel.querySelector(`[name=${other}]`).value = "";
  }

  #say() {
    setText(this.#words, this.topN ? "searchSettingsWith" : "searchSettings", { n: this.#topN });
  }

  #key(event) {
    if (event.key === "Enter" && event.target.matches("input")) event.preventDefault(); // would send the question
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    this.close();
  }

  #outside(target) {
    if (!this.#panel.hidden && !this.#panel.contains(target) && !this.button.contains(target)) this.close();
  }
}

function bounded(value) {
  const n = Math.round(Number(value));
  return n >= 1 && n <= MAX_TOP_N ? n : DEFAULT_TOP_N;
}

/* A multiple choice of names: checkboxes styled as chips, with a search field if there are many. */

const MANY = 12;

/** `items`: [{name, count}]; `chosen`: the checked names; `most`: the most that can be checked. */
function checkChips({ title, items, chosen, most, onToggle }) {
  const chips = items.map((item) => chip(item, chosen.includes(item.name), onToggle));
  const list = el("div", { class: "check-chips" }, ...chips);
  const group = el("fieldset", { class: "picker" }, el("legend", { i18n: title }), items.length > MANY && finder(chips), list);
  const limit = () => bound(chips, most);
  list.addEventListener("change", limit);
  limit();
  return group;
}

function chip({ name, count }, checked, onToggle) {
  const box = el("input", { type: "checkbox", class: "offscreen", value: name, on: { change: () => onToggle(name, box.checked) } });
  box.checked = checked;
  return el("label", { class: "check-chip" }, box, el("span", { text: name }), el("span", { class: "count", text: count ?? "" }));
}

function finder(chips) {
  const filter = (words) => chips.forEach((node) => (node.hidden = !folded(node.textContent).includes(folded(words)) && !boxOf(node).checked));
  return el("input", { type: "search", class: "finder", label: "pickerFind", "data-i18n-placeholder": "pickerFind",
    on: { input: ({ target }) => filter(target.value.trim()) } });
}

/** Disables the unchecked chips once the request's limit is reached. */
function bound(chips, most) {
  const full = chips.filter((node) => boxOf(node).checked).length >= most;
  for (const node of chips) boxOf(node).disabled = full && !boxOf(node).checked;
}

const boxOf = (node) => node.firstElementChild;
const folded = (text) => text.normalize("NFKC").toLowerCase();
