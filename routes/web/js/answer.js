/**
 * An answer that grows: finished blocks are rendered once, the growing one again on each frame.
 *
 * A very long answer keeps only the parts near the window as elements (5 MB would be half a million of
 * them); the others hold their place.
 */
import { BlockSplitter } from "./blocks.js";
import { decorate, dropUnknownMarks } from "./decorate.js";
import { onFrame } from "./frames.js";
import { engineReady, toFragment } from "./markdown.js";
import { Part } from "./part.js";

const STEP_CHARS = 16_000;
const VIRTUAL_FROM_PARTS = 8;
const MARGIN = "900px 0px";
const PX_PER_CHAR = 0.6;

export class AnswerView {
  #splitter = new BlockSplitter();
  #pieces = [];
  #split = 0;
  #ended = false;
  #parts = [];
  #near = new Set();
  #partOf = new WeakMap();
  #watcher = null;
  #tail = document.createElement("div");
  #tailText = "";
  #valid = null;
  #scheduled = false;

  constructor() {
    this.element = document.createElement("div");
    this.element.className = "prose";
    this.#tail.className = "part";
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
    dropUnknownMarks(this.element, valid);
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    engineReady.then(() => onFrame((deadline) => this.#frame(deadline)));
  }

  #frame(deadline) {
    this.#scheduled = false;
    this.#splitSome(deadline);
    let part = this.#wanted();
    for (let first = true; part && (first || performance.now() < deadline); first = false) {
      part.renderSome(this.#valid);
      part = this.#wanted();
    }
    if (this.#split < this.#pieces.length || part) this.#schedule();
    this.#renderTail();
  }

  #splitSome(deadline) {
    while (this.#split < this.#pieces.length) {
      this.#place(this.#splitter.feed(this.#takeStep()));
      if (performance.now() > deadline) return;
    }
    if (this.#ended) this.#place(this.#splitter.end());
  }

  /** Many small pieces are joined: one step costs about the same whatever the pieces' size. */
  #takeStep() {
    const start = this.#split;
    for (let chars = 0; this.#split < this.#pieces.length && chars < STEP_CHARS; this.#split++) {
      chars += this.#pieces[this.#split].length;
    }
    return this.#pieces.slice(start, this.#split).join("");
  }

  #place(blocks) {
    for (const block of blocks) {
      if (!this.#parts.length || this.#parts.at(-1).full) this.#openPart();
      this.#parts.at(-1).add(block);
    }
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

  /** The last part is rendered wherever the window is; one that was last stays so only near the window. */
  #leaveLast() {
    const last = this.#parts.at(-1);
    if (last?.untouched) last.reserve(PX_PER_CHAR);
    else if (this.#watcher && !this.#near.has(last)) last.drop(last.element.offsetHeight);
  }

  #wanted() {
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
      else if (this.#near.delete(part) || part !== this.#parts.at(-1)) part.drop(boundingClientRect.height);
    }
    this.#schedule();
  }

  #renderTail() {
    const open = this.#splitter.open;
    if (open === this.#tailText && this.#tail === this.element.lastChild) return;
    this.#tailText = open;
    this.#tail.remove();
    if (!open.trim()) return;
    this.#tail.replaceChildren(decorate(toFragment([open]), this.#valid));
    this.element.append(this.#tail);
  }
}
