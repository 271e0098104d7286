/** Completes slash commands and prompt templates in a list above the box, which keeps the focus. */

import { listTemplates } from "../api/library.js";
import { el } from "../base/dom.js";
import { commandOf, completions } from "../turn/commands.js";
import { insertText } from "../base/insert.js";

const TITLE_BEGUN = /^[/\uff0f]([^\n]{0,40})$/;

export class Completion {
  #matches = [];
  #active = -1;
  #dismissed = false;
  #list = el("ul", { id: "completions", class: "completions", role: "listbox", label: "commands", hidden: true });

  /** `library()` opens the library, replacing its command; `template(template)` inserts the template into the box. */
  constructor(box, handlers) {
    Object.assign(this, { box, handlers });
    box.closest("form").append(this.#list);
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", "completions");
    box.addEventListener("input", () => this.#typed());
    box.addEventListener("blur", () => this.close());
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault()); // the box keeps the focus
    this.#list.addEventListener("click", ({ target }) => this.#clicked(target.closest("[role=option]")));
  }

  get open() {
    return this.#matches.length > 0;
  }

  close() {
    this.#show([]);
  }

  /** Handles a key; returns whether it was meant for the list. */
  key({ key, shiftKey }) {
    if (!this.open) return false;
    if (key === "Escape") this.#dismiss();
    else if (key === "ArrowDown") this.#move(1);
    else if (key === "ArrowUp") this.#move(-1);
    else if (key === "Tab" && !shiftKey) this.#take(Math.max(0, this.#active));
    else return key === "Enter" && !shiftKey && this.#enter();
    return true;
  }

  #typed() {
    const matches = completions(this.box.value);
    if (!this.box.value) this.#dismissed = false;
    this.#show(this.#dismissed ? [] : matches);
    this.#addTemplates(this.box.value, matches);
  }

  /** Adds templates once they are loaded; commands complete without waiting for them, even if the server is unreachable. */
  async #addTemplates(typed, matches) {
    const [, words] = TITLE_BEGUN.exec(typed) ?? [];
    if (words === undefined || this.#dismissed || (commandOf(typed) && typed.includes(" "))) return;
    const templates = await listTemplates(words).catch(() => []);
    if (!templates.length || this.#dismissed || this.box.value !== typed || document.activeElement !== this.box) return;
    this.#show([...matches, ...templates.map((template) => ({ text: `/${template.title}`, template }))]);
  }

  /** While an argument is being typed, nothing is preselected until an arrow key is used, so that Enter does not replace it. */
  #show(matches) {
    this.#matches = matches;
    this.#list.replaceChildren(...matches.map(option));
    this.#list.hidden = !matches.length;
    this.#activate(matches.length && (matches[0].template || !this.box.value.includes(" ")) ? 0 : -1);
  }

  #dismiss() {
    this.#dismissed = true;
    this.close();
  }

  #move(by) {
    const count = this.#matches.length;
    this.#activate(this.#active < 0 ? (by > 0 ? 0 : count - 1) : (this.#active + by + count) % count);
  }

  #activate(at) {
    this.#active = at;
    for (const [i, node] of [...this.#list.children].entries()) node.setAttribute("aria-selected", String(i === at));
    if (at < 0) return this.box.removeAttribute("aria-activedescendant");
    this.box.setAttribute("aria-activedescendant", this.#list.children[at].id);
    this.#list.children[at].scrollIntoView({ block: "nearest" });
  }

  /** A command typed in full is sent, not completed; but the library opens, also on a phone, where Enter does not send. */
  #enter() {
    const chosen = this.#matches[this.#active];
    const isTyped = chosen?.text === this.box.value.normalize("NFKC").toLowerCase();
    if (!chosen || (isTyped && !chosen.template && !chosen.opens)) return false;
    this.#take(this.#active);
    return true;
  }

  #clicked(node) {
    if (node) this.#take([...this.#list.children].indexOf(node));
  }

  #take(at) {
    const { text, opens, template } = this.#matches[at];
    this.close();
    if (template) return this.handlers.template(template);
    this.box.setSelectionRange(0, this.box.value.length);
    insertText(this.box, text);
    this.close();
    if (opens) this.handlers.library();
  }
}

function option({ text, argument, does, template }, at) {
  return el("li", { id: `completion-${at}`, role: "option", "aria-selected": "false" },
    el("span", { class: "command" }, text, argument && el("span", { class: "argument", i18n: argument })),
    el("span", { class: "does", ...(template ? { text: template.batch_name } : { i18n: does }) }));
}
