/** A stretch of an answer: its blocks as text, and as elements while it is near the window. */

import { decorate } from "./decorate.js";
import { toFragment } from "./markdown.js";
import { morph } from "./morph.js";

const BATCH_CHARS = 3000;
const PART_CHARS = 12_000;

export class Part {
  #blocks = [];
  #rendered = 0;
  #chars = 0;
  /** How many of the element's nodes belong to finished blocks; those after them are of the growing one. */
  #settled = 0;

  constructor() {
    this.element = document.createElement("div");
    this.element.className = "part";
  }

  get full() {
    return this.#chars >= PART_CHARS;
  }

  get empty() {
    return this.#blocks.length === 0;
  }

  get pending() {
    return this.#rendered < this.#blocks.length;
  }

  get untouched() {
    return this.#rendered === 0;
  }

  add(block) {
    this.#blocks.push(block);
    this.#chars += block.length;
  }

  /** One batch more; what was shown of the growing block is taken over. `valid` as in `decorate`. */
  renderSome(valid) {
    const start = this.#rendered;
    for (let chars = 0; this.pending && chars < BATCH_CHARS; this.#rendered++) chars += this.#blocks[this.#rendered].length;
    this.#show(this.#blocks.slice(start, this.#rendered), valid);
    this.#settled = this.element.childNodes.length;
    if (!this.pending) this.element.removeAttribute("style"); // an empty one would tell it from a stored one
  }

  /** What still grows, after the finished blocks. */
  renderTail(blocks, valid) {
    this.#show(blocks, valid);
  }

  /** Back to text alone; the space stays as high as it was. */
  drop(heightPx) {
    if (heightPx) this.element.style.minHeight = `${heightPx}px`;
    this.element.replaceChildren();
    this.#rendered = this.#settled = 0;
  }

  /** The space it will about need, before it is rendered for the first time. */
  reserve(pxPerChar) {
    this.element.replaceChildren();
    this.element.style.minHeight = `${Math.round(this.#chars * pxPerChar)}px`;
  }

  #show(blocks, valid) {
    morph(this.element, this.#settled, decorate(toFragment(blocks), valid));
  }
}
