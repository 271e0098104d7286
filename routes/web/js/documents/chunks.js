/** The passages of one document, in document order, with their actions. */

import { listChunks } from "../api/documents.js";
import { el, icon, setText } from "../base/dom.js";
import { markedText } from "../sources/passage.js";

export class ChunkList {
  #next = null;
  #begun = false;
  #loading = null;

  /** `on`: `quote(chunk)` and `persona(chunk)`. */
  constructor(documentId, scroller, on) {
    Object.assign(this, { documentId, on });
    this.list = el("ol", { class: "chunks", role: "list", label: "docPassages" });
    this.note = el("p", { class: "faint", role: "status" });
    this.moreButton = el("button", { class: "text-button", type: "button", i18n: "more", hidden: true, on: { click: () => this.load() } });
    this.element = el("div", {}, this.list, this.note, this.moreButton);
    const onIntersect = (entries) => entries.some((one) => one.isIntersecting) && this.#next && this.load();
    this.observer = new IntersectionObserver(onIntersect, { root: scroller, rootMargin: "800px" });
  }

  /** Loads the next page; one request at a time. */
  load() {
    if (!this.#begun || this.#next) this.#loading ??= this.#load().finally(() => (this.#loading = null));
    return this.#loading;
  }

  /** Loads pages until the passage is listed, then scrolls to it and focuses it; without such a passage, does nothing. */
  async reach(chunkId) {
    const item = () => this.list.querySelector(`[data-id="${CSS.escape(chunkId)}"]`);
    for (let before = -1; !item() && this.list.childElementCount > before; ) {
      before = this.list.childElementCount;
      await this.load();
    }
    const chunk = item();
    if (!chunk) return;
    chunk.tabIndex = -1;
    chunk.focus({ preventScroll: true });
    chunk.scrollIntoView({ block: "center" });
    chunk.classList.add("called");
  }

  async #load() {
    const page = await listChunks(this.documentId, this.#next ?? "").catch(() => null);
    if (!page) return this.#failed();
    this.#begun = true;
    this.#next = page.next ?? null;
    this.list.append(...page.chunks.map((chunk) => this.#item(chunk)));
    this.note.hidden = true;
    setText(this.moreButton, "more");
    this.moreButton.hidden = !this.#next;
    this.observer.unobserve(this.moreButton); // otherwise a button that stays visible would not be reported again
    this.observer.observe(this.moreButton);
  }

  #failed() {
    setText(this.note, "docPassagesFailed");
    this.note.hidden = false;
    setText(this.moreButton, "docLoadAgain");
    this.moreButton.hidden = false;
  }

  #item(chunk) {
    const number = chunk.position + 1;
    return el("li", { class: "chunk", "data-id": chunk.chunk_id },
      el("div", { class: "chunk-head" }, el("span", { class: "chunk-place" }, ...place(chunk, number)),
        el("span", { class: "chunk-actions" },
          this.#action("quote", "docQuotePassage", number, () => this.on.quote(chunk)),
          this.#action("persona", "docPersonaPassage", number, () => this.on.persona(chunk)))),
      el("div", { class: "chunk-text" }, ...markedText(chunk)));
  }

  #action(shape, key, n, act) {
    return el("button", { class: "quiet", type: "button", label: [key, { n }], "data-action": shape, on: { click: act } },
      icon(shape));
  }
}

function place({ heading, page }, number) {
  return [
    el("span", { class: "chunk-number", text: number }),
    heading && el("span", { class: "chunk-heading", text: heading }),
    page && el("span", { i18n: ["page", { n: page }] }),
  ].filter(Boolean);
}
