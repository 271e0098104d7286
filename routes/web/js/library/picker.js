/** Browses the library (module, batch, item). An item can become the persona or be quoted in the question box. */

import { listBatches, listItems, listModules } from "../api/library.js";
import { runWithNotice } from "../api/http.js";
import { el, icon, setText } from "../base/dom.js";
import { firstChars } from "../base/insert.js";
import { wordsFor } from "../persona/dialog.js";

const EXCERPT_CHARS = 90;
const STEPS = { ArrowDown: (at) => at + 1, ArrowUp: (at) => at - 1, Home: () => 0, End: () => -1 };

/**
 * `setPersona(item)` may throw an error, which is shown here; `quote(item)` inserts the item into the box.
 * An item is {batch_name, title, content}. `replaces`: the first words of the persona to be replaced, or "".
 * `left()` is called when the dialog closes without a quote.
 */
export function openLibrary(handlers) {
  new Picker(handlers).show();
}

class Picker {
  #trail = []; // of {name}; the last may be an item
  #going = 0;
  #quoted = false;
  #path = el("ol", { class: "library-path" });
  #body = el("div", { class: "library-body" });
  #notice = el("p", { class: "persona-fault", role: "alert" });

  constructor(handlers) {
    this.handlers = handlers;
    const close = el("button", { class: "quiet", type: "button", label: "close", on: { click: () => this.dialog.close() } }, icon("close"));
    this.dialog = el("dialog", { class: "library", label: "library" },
      el("header", {}, el("nav", { label: "libraryPath" }, this.#path), close), this.#body, this.#notice);
    this.dialog.addEventListener("close", () => {
      this.dialog.remove();
      if (!this.#quoted) this.handlers.left();
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
  }

  show() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.#go([]);
  }

  /** `from`: the name of the entry to focus when going back. */
  #go(trail, from = "") {
    const going = ++this.#going;
    return runWithNotice(this.#notice, async () => {
      const content = await this.#content(trail);
      if (going !== this.#going) return; // something else was opened in the meantime
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
      more.onclick = () => runWithNotice(this.#notice, async () => {
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
      this.handlers.replaces && el("p", { class: "faint", i18n: ["personaReplaces", { replaces: this.handlers.replaces }] }),
      el("div", { class: "dialog-actions" }, quote, set),
    ];
  }

  async #set(item, button) {
    button.disabled = true;
    try {
      await this.handlers.setPersona(item);
      this.dialog.close();
    } catch (error) {
      setText(this.#notice, ...wordsFor(error));
      button.disabled = false;
    }
  }

  /** `handlers.quote` closes the dialog. */
  #quote(item) {
    this.#quoted = true;
    this.handlers.quote(item);
  }

  #entry(place, note) {
    return el("button", { class: "library-entry", type: "button", "data-name": place.name, on: { click: () => this.#go([...this.#trail, place]) } },
      el("span", { class: "library-name", text: place.name }), el("span", { class: "faint", ...note }), icon("chevron"));
  }

  /** One element of the breadcrumb path; the last is the current place. */
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
