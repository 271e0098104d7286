/** The memory panel: lists memories with their date and origin; adds, edits and deletes them; switches memory off. */

import { addMemory, changeMemory, deleteMemory, listMemories, switchMemory } from "../api/memories.js";
import { ApiError } from "../api/http.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el, setText } from "../base/dom.js";
import { causeOf, formatDay } from "../base/i18n.js";
import { originOf } from "./origin.js";

export class MemoryPanel {
  #next = null;
  #query = "";
  #refreshes = 0;

  constructor(dialog) {
    this.dialog = dialog;
    this.notice = el("p", { class: "memory-notice", role: "status" });
    this.search = el("input", { type: "search", maxlength: "200", autocomplete: "off", label: "memorySearch",
      "data-i18n-placeholder": "memorySearch",
      on: { input: () => this.#search() } });
    this.list = el("ul", { class: "memory-list" });
    this.empty = el("p", { class: "faint", i18n: "memoryNone", hidden: true });
    this.more = el("button", { class: "text-button", type: "button", hidden: true, i18n: "memoryMore",
      on: { click: () => this.#load() } });
    this.on = el("input", { type: "checkbox", on: { change: () => this.#switch() } });
    dialog.querySelector(".panel").append(
      el("p", { class: "faint", i18n: "memoryIntro" }),
      el("label", { class: "memory-switch" }, this.on, el("span", { i18n: "memoryOn" })),
      this.#form(), this.search, this.notice, this.list, this.empty, this.more);
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("click", (event) => event.target.closest("a") && dialog.close());
  }

  /** With `content`, lists only the memory to correct and opens it for editing. */
  async open({ memoryId, content = "" } = {}) {
    if (!this.dialog.open) this.dialog.showModal();
    this.notice.textContent = "";
    this.search.value = this.#query = content;
    await this.refresh();
    this.list.querySelector(`[data-memory="${memoryId}"] .memory-change`)?.click();
  }

  refresh() {
    this.#next = null;
    this.#refreshes += 1;
    this.list.replaceChildren();
    return this.#load();
  }

  async #load() {
    const refreshes = this.#refreshes;
    await this.#try(async () => {
      const page = await listMemories({ before: this.#next, query: this.#query });
      if (refreshes !== this.#refreshes) return; // superseded by a newer request
      this.list.append(...page.memories.map((memory) => this.#item(memory)));
      this.#next = page.next;
      this.more.hidden = page.next === null;
      this.on.checked = page.on;
      this.empty.hidden = this.list.childElementCount > 0;
    });
  }

  #search() {
    this.#query = this.search.value.trim();
    return this.refresh();
  }

  async #switch() {
    await this.#act(async () => (this.on.checked = await switchMemory(this.on.checked)));
  }

  #form() {
    const field = el("input", { maxlength: "500", autocomplete: "off", required: true, label: "memoryAddLabel",
      "data-i18n-placeholder": "memoryAddLabel" });
    const add = async (event) => {
      event.preventDefault();
      const content = field.value;
      await this.#act(async () => {
        await addMemory(content);
        if (field.value === content) field.value = ""; // otherwise the next one is already being typed
        await this.refresh();
      });
    };
    return el("form", { class: "memory-add", on: { submit: add } }, field,
      el("button", { class: "button", type: "submit", i18n: "memoryAdd" }));
  }

  #item(memory) {
    const ended = memory.valid_until && formatDay(new Date(memory.valid_until));
    const change = () => item.replaceChildren(...this.#editing(memory, item));
    const item = el("li", { "data-memory": memory.memory_id, class: ended ? "ended" : "" });
    item.append(
      el("p", { text: memory.content }),
      el("p", { class: "memory-facts" }, el("span", { i18n: `memoryType_${memory.type}` }), originOf(memory),
        ended && el("span", { i18n: ["memoryUntil", { day: ended }] })),
      el("button", { class: "text-button memory-change", type: "button", i18n: "memoryChange", on: { click: change } }),
      el("button", { class: "text-button", type: "button", i18n: "memoryForget", on: { click: () => this.#forget(memory) } }));
    return item;
  }

  #editing(memory, item) {
    const field = el("input", { maxlength: "500", value: memory.content, label: "memoryChangeLabel" });
    const keep = async (event) => {
      event.preventDefault();
      await this.#act(async () => item.replaceWith(this.#item(await changeMemory(memory.memory_id, field.value))));
    };
    queueMicrotask(() => field.focus());
    return [el("form", { class: "memory-add", on: { submit: keep } }, field,
      el("button", { class: "button primary", type: "submit", i18n: "memoryKeep" }),
      el("button", { class: "button", type: "button", i18n: "memoryForget", on: { click: () => this.#forget(memory) } }))];
  }

  async #forget(memory) {
    if (!(await confirmRemoval("memoryForgetAsk", { content: memory.content }))) return;
    await this.#act(async () => {
      await deleteMemory(memory.memory_id);
      await this.refresh();
    });
  }

  #act(work) {
    this.notice.textContent = "";
    return this.#try(work);
  }

  /** Shows errors in the panel; typed text is not lost. */
  async #try(work) {
    try {
      await work();
    } catch (error) {
      setText(this.notice, error instanceof ApiError ? causeOf(error) : "memoryFailed");
    }
  }
}
