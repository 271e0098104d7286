/**
 * A model's thinking as plain text, in pieces that the browser lays out only when they are in view.
 *
 * The cuts depend on the text alone, so that what was streamed and what was stored become the same elements.
 */
import { el } from "../base/dom.js";

const PIECE_CHARS = 2000;
const MOST_CHARS = 8000; // of a line that does not end

const isHigh = (code) => (code & 0xfc00) === 0xd800; // the first half of a character

export class ThinkingText {
  #size = 0; // of the open piece
  #node = null;

  constructor(element) {
    this.element = element;
  }

  append(text) {
    for (let rest = text; rest; ) {
      const room = this.#room(rest);
      this.#grow(rest.slice(0, room));
      rest = rest.slice(room);
    }
  }

  /** How much of `text` still belongs to the open piece: up to the first line's end past its size. */
  #room(text) {
    const newline = text.indexOf("\n", Math.max(0, PIECE_CHARS - this.#size - 1));
    const most = Math.max(1, MOST_CHARS - this.#size);
    const end = Math.min(newline < 0 ? text.length : newline + 1, most);
    return end === most && isHigh(text.charCodeAt(end - 1)) ? end + 1 : end;
  }

  #grow(text) {
    this.#node ??= this.element.appendChild(el("div", { class: "thinking-piece" })).appendChild(document.createTextNode(""));
    this.#node.appendData(text);
    this.#size += text.length;
    const atMost = this.#size >= MOST_CHARS && !isHigh(text.charCodeAt(text.length - 1));
    if (atMost || (this.#size >= PIECE_CHARS && text.endsWith("\n"))) [this.#size, this.#node] = [0, null];
  }
}
