/** A section of an answer: its blocks as text, and as elements while it is near the viewport. */

import { decorate } from "./decorate.js";
import { toFragment } from "./markdown.js";

const BATCH_CHARS = 3000;
const PART_CHARS = 12_000;

export class Part {
  #blocks = [];
  #rendered = 0;
  #chars = 0;
  /** How many of the element's nodes belong to finished blocks; the rest belong to the growing one. */
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

  /** Renders one more batch, reusing the nodes of the growing block. `valid` as in `decorate`. */
  renderSome(valid) {
    const start = this.#rendered;
    for (let chars = 0; this.pending && chars < BATCH_CHARS; this.#rendered++) chars += this.#blocks[this.#rendered].length;
    this.#show(this.#blocks.slice(start, this.#rendered), valid);
    this.#settled = this.element.childNodes.length;
    if (!this.pending) this.element.removeAttribute("style"); // an empty one would differ from a stored answer
  }

  /** Renders the growing text after the finished blocks. */
  renderTail(blocks, valid) {
    this.#show(blocks, valid);
  }

  /** Discards the elements and keeps the text; the space keeps its height. */
  drop(heightPx) {
    if (heightPx) this.element.style.minHeight = `${heightPx}px`;
    this.element.replaceChildren();
    this.#rendered = this.#settled = 0;
  }

  /** Reserves roughly the space that it will need, before the first rendering. */
  reserve(pxPerChar) {
    this.element.replaceChildren();
    this.element.style.minHeight = `${Math.round(this.#chars * pxPerChar)}px`;
  }

  #show(blocks, valid) {
    morph(this.element, this.#settled, decorate(toFragment(blocks), valid));
  }
}

/* Updates rendered nodes to match freshly rendered ones, touching only the differences. */

/**
 * Makes the children of `parent` from index `from` match those of `fragment`. Unchanged nodes keep the user's
 * selection, focus and scroll position; text that only grew is appended to.
 */
function morph(parent, from, fragment) {
  let old = parent.childNodes[from] ?? null;
  for (const fresh of [...fragment.childNodes]) {
    if (!old) {
      parent.append(fresh);
      continue;
    }
    const next = old.nextSibling;
    if (!patched(old, fresh)) old.replaceWith(fresh);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** Makes `old` match `fresh` in place if possible; returns whether it was. */
function patched(old, fresh) {
  if (old.isEqualNode(fresh)) return true;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
  if (old.nodeType === Node.TEXT_NODE) return patchText(old, fresh.data);
  if (!sameAttributes(old, fresh)) return false;
  morph(old, 0, fresh);
  return true;
}

function patchText(node, data) {
  if (data.startsWith(node.data)) node.appendData(data.slice(node.length));
  else node.data = data;
  return true;
}

function sameAttributes(old, fresh) {
  const names = old.getAttributeNames();
  return names.length === fresh.attributes.length && names.every((name) => old.getAttribute(name) === fresh.getAttribute(name));
}
