/** A prompt template in the question box: its variables are tab stops, and Tab selects the next unfilled one. */

import { insertText } from "../base/insert.js";

export class TabStops {
  #marks = []; // the distinct "{name}"
  #at = null; // the stop that the caret is in: {mark, before, after}

  constructor(box) {
    this.box = box;
  }

  get open() {
    return this.#marks.length > 0;
  }

  /** Replaces the box's text by the template and selects its first variable. */
  begin({ content, variables }) {
    this.end();
    this.box.setSelectionRange(0, this.box.value.length);
    insertText(this.box, content);
    this.#marks = variables.map((name) => `{${name}}`);
    this.#next(0);
  }

  end() {
    this.#marks = [];
    this.#at = null;
  }

  /** Copies the value typed for a variable to all its other occurrences. */
  fill() {
    const { mark, before, after } = this.#at ?? {};
    const text = this.box.value;
    this.#at = null;
    if (!mark || !text.startsWith(before) || !text.endsWith(after) || text.length <= before.length + after.length) return;
    const written = text.slice(before.length, text.length - after.length);
    if (written.includes(mark)) return; // not filled
    for (let at = text.indexOf(mark); at >= 0; at = this.box.value.indexOf(mark)) {
      this.box.setSelectionRange(at, at + mark.length);
      insertText(this.box, written);
    }
  }

  /** Handles a key; returns whether it was meant for the tab stops. */
  key({ key, shiftKey }) {
    if (!this.open) return false;
    if (key === "Escape") {
      this.end();
      return true;
    }
    if (key !== "Tab" || shiftKey) return false;
    const from = this.box.selectionEnd;
    this.fill();
    return this.#next(from);
  }

  /** Selects the first unfilled stop after `from`, else the first of all; returns whether there is one. */
  #next(from) {
    const { value } = this.box;
    const after = (start) => this.#marks
      .map((mark) => ({ mark, at: value.indexOf(mark, start) }))
      .filter(({ at }) => at >= 0)
      .sort((one, other) => one.at - other.at)[0];
    const stop = after(from) ?? after(0);
    if (!stop) {
      this.end();
      return false;
    }
    const end = stop.at + stop.mark.length;
    this.#at = { mark: stop.mark, before: value.slice(0, stop.at), after: value.slice(end) };
    this.box.setSelectionRange(stop.at, end);
    return true;
  }
}
