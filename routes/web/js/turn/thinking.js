/** The collapsible panel with a model's thinking as plain text; hidden if there is none. */

import { el, icon, setText } from "../base/dom.js";
import { onFrame } from "../base/frames.js";
import { seconds } from "../base/i18n.js";
import { readPref, writePref } from "../base/prefs.js";

const STEP_CHARS = 60_000; // per frame
const NEAR_PX = 40;
const TICK_MS = 1000;

export class ThinkingView {
  #waiting = [];
  #startedMs = 0;
  #scheduled = false;
  #timer = 0;
  #atEnd = true;
  #onShown = () => {};
  #text;

  constructor() {
    this.title = el("span", { i18n: "thoughts" });
    this.body = el("div", { class: "thinking-text", tabindex: "0", role: "group", label: "thoughts" });
    this.element = el("details", { class: "thinking", hidden: true },
      el("summary", { on: { click: () => this.#chosen() } }, icon("chevron"), this.title), this.body);
    this.#text = new ThinkingText(this.body);
    this.body.addEventListener("scroll", () => (this.#atEnd = this.#nearEnd()), { passive: true });
  }

  get running() {
    return this.element.classList.contains("running");
  }

  /** Resolves when everything received so far is shown. */
  get shown() {
    return this.#waiting.length ? new Promise((resolve) => (this.#onShown = resolve)) : Promise.resolve();
  }

  append(text) {
    if (!this.#startedMs) this.#begin();
    this.#add(text);
  }

  /** Thinking has ended: the answer began, or the turn ended. */
  end() {
    if (!this.running) return;
    this.element.classList.remove("running");
    clearInterval(this.#timer);
    this.took(performance.now() - this.#startedMs);
  }

  /** Shows the duration; the server rounds like the page. */
  took(ms) {
    if (!this.element.hidden && Number.isFinite(ms)) setText(this.title, "thoughtFor", { s: seconds(ms) });
  }

  showStored(text, ms) {
    this.element.hidden = !text;
    this.#add(text);
    if (ms) this.took(ms);
  }

  #begin() {
    this.#startedMs = performance.now();
    this.element.hidden = false;
    this.element.classList.add("running");
    this.element.open = readPref("thinkingOpen") === "true";
    this.#tick();
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  #tick() {
    const s = Math.floor((performance.now() - this.#startedMs) / 1000);
    setText(this.title, s ? "thinkingFor" : "thinkingNow", s ? { s } : undefined);
  }

  /** Remembers whether the user wants to see thinking while it runs; the click precedes the toggle. */
  #chosen() {
    if (this.running) writePref("thinkingOpen", String(!this.element.open));
  }

  #add(text) {
    for (let at = 0; at < text.length; at += STEP_CHARS) this.#waiting.push(text.slice(at, at + STEP_CHARS));
    if (this.#scheduled || !this.#waiting.length) return;
    this.#scheduled = true;
    onFrame(() => this.#flush());
  }

  #flush() {
    this.#scheduled = false;
    let chars = 0;
    while (this.#waiting.length && chars < STEP_CHARS) {
      chars += this.#waiting[0].length;
      this.#text.append(this.#waiting.shift());
    }
    if (this.#atEnd && this.running && this.element.open) this.body.scrollTop = this.body.scrollHeight;
    if (this.#waiting.length) this.#add("");
    else this.#onShown();
  }

  #nearEnd() {
    return this.body.scrollHeight - this.body.scrollTop - this.body.clientHeight < NEAR_PX;
  }
}

/*
 * A model's thinking as plain text, split into pieces that the browser lays out only when they are in view.
 *
 * The splits depend on the text alone, so that streamed and stored text produce the same elements.
 */

const PIECE_CHARS = 2000;
const MAX_CHARS = 8000; // for a line that does not end

const isHigh = (code) => (code & 0xfc00) === 0xd800; // a high surrogate

class ThinkingText {
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

  /** How much of `text` belongs to the open piece: up to the first line break beyond its size. */
  #room(text) {
    const newline = text.indexOf("\n", Math.max(0, PIECE_CHARS - this.#size - 1));
    const most = Math.max(1, MAX_CHARS - this.#size);
    const end = Math.min(newline < 0 ? text.length : newline + 1, most);
    return end === most && isHigh(text.charCodeAt(end - 1)) ? end + 1 : end;
  }

  #grow(text) {
    this.#node ??= this.element.appendChild(el("div", { class: "thinking-piece" })).appendChild(document.createTextNode(""));
    this.#node.appendData(text);
    this.#size += text.length;
    const atMost = this.#size >= MAX_CHARS && !isHigh(text.charCodeAt(text.length - 1));
    if (atMost || (this.#size >= PIECE_CHARS && text.endsWith("\n"))) [this.#size, this.#node] = [0, null];
  }
}
