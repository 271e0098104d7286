/** The slash commands that go on from what is typed, in a list above the box. The focus stays in the box. */

import { el } from "../base/dom.js";
import { completions } from "../turn/commands.js";
import { insertText } from "../base/insert.js";

export class Completion {
  #matches = [];
  #active = -1;
  #dismissed = false;
  #list = el("ul", { id: "completions", class: "completions", role: "listbox", label: "commands", hidden: true });

  constructor(box) {
    this.box = box;
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
  }

  /** An argument that is being typed is not replaced by Enter: nothing is chosen then before an arrow is. */
  #show(matches) {
    this.#matches = matches;
    this.#list.replaceChildren(...matches.map(option));
    this.#list.hidden = !matches.length;
    this.#activate(matches.length && !this.box.value.includes(" ") ? 0 : -1);
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

  /** What is typed in full is sent. */
  #enter() {
    const chosen = this.#matches[this.#active];
    if (!chosen || chosen.text === this.box.value.normalize("NFKC").toLowerCase()) return false;
    this.#take(this.#active);
    return true;
  }

  #clicked(node) {
    if (node) this.#take([...this.#list.children].indexOf(node));
  }

  #take(at) {
    const { text } = this.#matches[at];
    this.box.setSelectionRange(0, this.box.value.length);
    insertText(this.box, text);
    this.close();
  }
}

function option({ text, argument, does }, at) {
  return el("li", { id: `completion-${at}`, role: "option", "aria-selected": "false" },
    el("span", { class: "command" }, text, argument && el("span", { class: "argument", i18n: argument })),
    el("span", { class: "does", i18n: does }));
}
