/** The slash commands and prompt templates that go on from what is typed, in a list above the box, which keeps the focus. */

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

  /** `library()` opens it in the place of its command; `template(template)` writes that one into the box. */
  constructor(box, acts) {
    Object.assign(this, { box, acts });
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

  /** Whether the key was for the list. */
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

  /** They come later; commands complete without them, and where the server cannot be asked. */
  async #addTemplates(typed, matches) {
    const [, words] = TITLE_BEGUN.exec(typed) ?? [];
    if (words === undefined || this.#dismissed || (commandOf(typed) && typed.includes(" "))) return;
    const templates = await listTemplates(words).catch(() => []);
    if (!templates.length || this.#dismissed || this.box.value !== typed || document.activeElement !== this.box) return;
    this.#show([...matches, ...templates.map((template) => ({ text: `/${template.title}`, template }))]);
  }

  /** An argument that is being typed is not replaced by Enter: nothing is chosen then before an arrow is. */
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

  /** What is typed in full is sent; the library opens, on a phone too, where Enter sends nothing. */
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
    if (template) return this.acts.template(template);
    this.box.setSelectionRange(0, this.box.value.length);
    insertText(this.box, text);
    this.close();
    if (opens) this.acts.library();
  }
}

function option({ text, argument, does, template }, at) {
  return el("li", { id: `completion-${at}`, role: "option", "aria-selected": "false" },
    el("span", { class: "command" }, text, argument && el("span", { class: "argument", i18n: argument })),
    el("span", { class: "does", ...(template ? { text: template.batch_name } : { i18n: does }) }));
}
