/** The library's picker: module, batch, item. An item becomes the persona, or text in the question box. */

import { listBatches, listItems, listModules } from "../api/library.js";
import { orNotice } from "../api/http.js";
import { el, icon, setText } from "../base/dom.js";
import { firstChars } from "../base/insert.js";
import { wordsFor } from "../persona/dialog.js";

const EXCERPT_CHARS = 90;
const STEPS = { ArrowDown: (at) => at + 1, ArrowUp: (at) => at - 1, Home: () => 0, End: () => -1 };

/**
 * `setPersona(item)` may refuse with an error, which is said here; `quote(item)` puts it into the box.
 * An item is {batch_name, title, content}. `replaces`: the first words of the persona that would go, or "".
 * `left()`: it is closed, and nothing was put into the box.
 */
export function openLibrary(acts) {
  new Picker(acts).show();
}

class Picker {
  #trail = []; // of {name}, the last may be an item
  #going = 0;
  #quoted = false;
  #path = el("ol", { class: "library-path" });
  #body = el("div", { class: "library-body" });
  #notice = el("p", { class: "persona-fault", role: "alert" });

  constructor(acts) {
    this.acts = acts;
    const close = el("button", { class: "quiet", type: "button", label: "close", on: { click: () => this.dialog.close() } }, icon("close"));
    this.dialog = el("dialog", { class: "library", label: "library" },
      el("header", {}, el("nav", { label: "libraryPath" }, this.#path), close), this.#body, this.#notice);
    this.dialog.addEventListener("close", () => {
      this.dialog.remove();
      if (!this.#quoted) this.acts.left();
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
  }

  show() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.#go([]);
  }

  /** `from`: the name to come back to. */
  #go(trail, from = "") {
    const going = ++this.#going;
    return orNotice(this.#notice, async () => {
      const content = await this.#content(trail);
      if (going !== this.#going) return; // something else was opened meanwhile
      this.#trail = trail;
      this.#body.replaceChildren(...content.filter(Boolean));
      this.#path.replaceChildren(...[{}, ...trail].map(({ name }, depth) => this.#place(name, depth)));
      const entries = this.#entries();
      (entries.find(({ dataset }) => dataset.name === from) ?? entries[0] ?? this.#body.querySelector("[tabindex]"))?.focus();
    });
  }

  #content(trail) {
    const [module, batch, item] = trail;
    if (item) return this.#card(batch.name, item.item);
    if (batch) return this.#items(module.name, batch.name);
    return module ? this.#batches(module.name) : this.#modules();
  }

  async #modules() {
    const { modules, problems } = await listModules();
    const entries = modules.map(({ name, batches }) => this.#entry({ name }, { i18n: ["libraryBatches", { n: batches }] }));
    return [
      entries.length ? list(entries) : el("p", { class: "faint", tabindex: "-1", i18n: "libraryEmpty" }),
      problems.length > 0 && el("details", { class: "library-problems" }, el("summary", { i18n: ["libraryProblems", { n: problems.length }] }),
        ...problems.map((text) => el("p", { text }))),
    ];
  }

  async #batches(module) {
    const batches = await listBatches(module);
    return [list(batches.map(({ batch_name: name, items }) => this.#entry({ name }, { i18n: ["libraryItems", { n: items }] })))];
  }

  async #items(module, batch) {
    const page = await listItems(module, batch);
    const entries = list([]);
    const more = el("button", { class: "text-button", type: "button", i18n: "libraryMore" });
    const add = ({ items, next }) => {
      entries.append(...items.map((item) => el("li", {}, this.#entry({ name: item.title, item }, { text: excerpt(item.content) }))));
      more.hidden = next === null;
      more.onclick = () => orNotice(this.#notice, async () => {
        const at = entries.childElementCount;
        add(await listItems(module, batch, next));
        entries.children[at].firstElementChild.focus();
      });
    };
    add(page);
    return [entries, more];
  }

  async #card(batch, { title, content }) {
    const item = { batch_name: batch, title, content };
    const set = el("button", { class: "button primary", type: "button", i18n: "librarySet", on: { click: () => this.#set(item, set) } });
    const quote = el("button", { class: "button", type: "button", i18n: "libraryQuote", on: { click: () => this.#quote(item) } });
    return [
      el("div", { class: "library-text", tabindex: "0", role: "group", label: "libraryText", text: content }),
      this.acts.replaces && el("p", { class: "faint", i18n: ["personaReplaces", { replaces: this.acts.replaces }] }),
      el("div", { class: "dialog-actions" }, quote, set),
    ];
  }

  async #set(item, button) {
    button.disabled = true;
    try {
      await this.acts.setPersona(item);
      this.dialog.close();
    } catch (error) {
      setText(this.#notice, ...wordsFor(error));
      button.disabled = false;
    }
  }

  /** Whoever puts it there closes what lies over the box. */
  #quote(item) {
    this.#quoted = true;
    this.acts.quote(item);
  }

  #entry(place, note) {
    return el("button", { class: "library-entry", type: "button", "data-name": place.name, on: { click: () => this.#go([...this.#trail, place]) } },
      el("span", { class: "library-name", text: place.name }), el("span", { class: "faint", ...note }), icon("chevron"));
  }

  /** One place of the path; the last is where the reader is. */
  #place(name, depth) {
    const words = depth ? { text: name } : { i18n: "library" };
    if (depth === this.#trail.length) return el("li", {}, el("h2", { "aria-current": "page", ...words }));
    return el("li", {}, el("button", { class: "text-button", type: "button", ...words, on: { click: () => this.#back(depth) } }));
  }

  #back(depth) {
    return this.#go(this.#trail.slice(0, depth), this.#trail[depth].name);
  }

  #entries() {
    return [...this.#body.querySelectorAll(".library-entry")];
  }

  #key(event) {
    const { key, target } = event;
    const entries = this.#entries();
    const at = entries.indexOf(target);
    if ((key === "Backspace" || key === "ArrowLeft") && this.#trail.length) this.#back(this.#trail.length - 1);
    else if (at >= 0 && key === "ArrowRight") target.click();
    else if (at >= 0 && key in STEPS) entries.at(STEPS[key](at) % entries.length).focus();
    else return;
    event.preventDefault();
  }
}

const list = (entries) => el("ul", { class: "library-list" }, ...entries.map((entry) => el("li", {}, entry)));
const excerpt = (text) => firstChars(text.slice(0, EXCERPT_CHARS * 4).split(/\s+/).join(" "), EXCERPT_CHARS);
