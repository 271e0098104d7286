/**
 * A growing answer: finished blocks are rendered once, the growing one again on each frame.
 *
 * A very long answer keeps elements only for the parts near the viewport (5 MB would be half a million elements);
 * the other parts keep their height.
 */

import { onFrame } from "../base/frames.js";
import { BlockSplitter } from "./blocks.js";
import { settleMarks } from "./decorate.js";
import { engineReady } from "./markdown.js";
import { Part } from "./part.js";
import { previewOf } from "./preview.js";

const STEP_CHARS = 16_000;
const VIRTUAL_FROM_PARTS = 8;
const MARGIN = "900px 0px";
const PX_PER_CHAR = 0.6;
const TAIL_SHARE = 4; // rendering the growing block takes at most about 1/TAIL_SHARE of the time

export class AnswerView {
  #splitter = new BlockSplitter();
  #pieces = [];
  #split = 0;
  #ended = false;
  #parts = [];
  #near = new Set();
  #partOf = new WeakMap();
  #watcher = null;
  #tail = { text: "", part: null, costMs: 0, atMs: 0 };
  #valid = null;
  #scheduled = false;
  #resolve = null;

  /** Resolves when the answer has ended and everything near the viewport or at its end is rendered. */
  drained = new Promise((resolve) => (this.#resolve = resolve));

  constructor() {
    this.element = document.createElement("div");
    this.element.className = "prose";
  }

  get text() {
    return this.#pieces.join("");
  }

  get empty() {
    return this.#pieces.length === 0;
  }

  append(text) {
    for (let at = 0; at < text.length; at += STEP_CHARS) this.#pieces.push(text.slice(at, at + STEP_CHARS));
    this.#schedule();
  }

  end() {
    this.#ended = true;
    this.#schedule();
  }

  setValidMarks(valid) {
    this.#valid = valid;
    settleMarks(this.element, valid);
  }

  /** Renders every part, for printing. */
  renderAll() {
    for (const part of this.#parts) while (part.pending) part.renderSome(this.#valid);
  }

  /** Keeps elements only near the viewport again. */
  renderNear() {
    if (!this.#watcher) return;
    const far = this.#parts.slice(0, -1).filter((part) => !this.#near.has(part));
    const heights = far.map((part) => part.element.offsetHeight);
    for (const [at, part] of far.entries()) part.drop(heights[at]);
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    engineReady.then(() => onFrame((deadline) => this.#frame(deadline)));
  }

  #frame(deadline) {
    this.#scheduled = false;
    this.#splitSome(deadline);
    let part = this.#nextPart();
    let rendered = false;
    for (; part && !(rendered && performance.now() >= deadline); rendered = true) {
      part.renderSome(this.#valid);
      part = this.#nextPart();
    }
    const waits = (rendered && performance.now() >= deadline) || this.#renderTail();
    if (this.#ended) this.#trim();
    if (this.#split < this.#pieces.length || part || waits) this.#schedule();
    else if (this.#ended) this.#resolve();
  }

  #splitSome(deadline) {
    while (this.#split < this.#pieces.length) {
      this.#place(this.#splitter.feed(this.#takeStep()));
      if (performance.now() > deadline) break;
    }
    if (this.#ended && this.#split === this.#pieces.length) this.#place(this.#splitter.end());
  }

  /** Joins many small pieces, so that a step costs about the same whatever their size. */
  #takeStep() {
    const start = this.#split;
    for (let chars = 0; this.#split < this.#pieces.length && chars < STEP_CHARS; this.#split++) {
      chars += this.#pieces[this.#split].length;
    }
    return this.#pieces.slice(start, this.#split).join("");
  }

  #place(blocks) {
    for (const block of blocks) this.#growing().add(block);
    if (blocks.length) this.#tail.text = null;
  }

  /** The part to which the next block belongs. */
  #growing() {
    if (!this.#parts.length || this.#parts.at(-1).full) this.#openPart();
    return this.#parts.at(-1);
  }

  #openPart() {
    const part = new Part();
    this.#leaveLast();
    this.#parts.push(part);
    this.element.append(part.element);
    if (this.#watcher) this.#watch(part);
    else this.#near.add(part);
    if (!this.#watcher && this.#parts.length > VIRTUAL_FROM_PARTS) this.#becomeVirtual();
  }

  /** The last part is always rendered; once it is no longer the last, it stays rendered only near the viewport. */
  #leaveLast() {
    const last = this.#parts.at(-1);
    if (last?.untouched) last.reserve(PX_PER_CHAR);
    else if (this.#watcher && !this.#near.has(last)) last.drop(last.element.offsetHeight);
  }

  #nextPart() {
    if (this.#parts.at(-1)?.pending) return this.#parts.at(-1);
    for (const part of this.#near) if (part.pending) return part;
    return null;
  }

  #becomeVirtual() {
    this.#watcher = new IntersectionObserver((entries) => this.#moved(entries), { rootMargin: MARGIN });
    for (const part of this.#parts) this.#watch(part);
  }

  #watch(part) {
    this.#partOf.set(part.element, part);
    this.#watcher.observe(part.element);
  }

  #moved(entries) {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const part = this.#partOf.get(target);
      if (isIntersecting) this.#near.add(part);
      else {
        this.#near.delete(part);
        if (part !== this.#parts.at(-1)) part.drop(boundingClientRect.height);
      }
    }
    this.#schedule();
  }

  /** Removes a part that was opened for a block that never materialized. */
  #trim() {
    if (this.#parts.at(-1)?.empty && this.#split === this.#pieces.length) this.#parts.pop().element.remove();
  }

  /** Returns whether the tail must be rendered again in a later frame. */
  #renderTail() {
    const tail = this.#tail;
    const open = this.#splitter.open.filter((text) => text.trim());
    const text = open.join("\n");
    if (text) this.#growing();
    const part = this.#parts.at(-1);
    if (!part || part.pending || (text === tail.text && part === tail.part)) return false;
    const began = performance.now();
    if (!this.#ended && began - tail.atMs < tail.costMs * TAIL_SHARE) return true;
    part.renderTail(open.map((block) => previewOf(block, this.#splitter.inCode)), this.#valid);
    this.#tail = { text, part, costMs: performance.now() - began, atMs: performance.now() };
    return false;
  }
}
