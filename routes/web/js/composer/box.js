/** The question box. Enter sends (not where a finger types), Shift+Enter breaks the line, Esc stops; never while an IME composes. */

import { tell } from "../base/bus.js";
import { isTouch, sends, setLabel, setText } from "../base/dom.js";
import { countChars, insertText } from "../base/insert.js";
import { Completion } from "./completion.js";
import { Stops } from "./stops.js";

const DEFAULT_MAX_CHARS = 8000;
const COUNT_FROM = 0.9;
const TALL_CHARS = 5000; // surely taller than the box may be
const OPENS_LIBRARY = new RegExp(String.raw`(?:^|\n)[ \t]*[/\uff0f](?:模块|library)\s*$`, "i"); // the last line: what stands above it stays
const GROWS_BY_ITSELF = CSS.supports("field-sizing", "content");

// 229: Safari ends the composition before it tells us about the key that ended it.
const composing = (event) => event.isComposing || event.keyCode === 229;

export class QuestionBox {
  #running = false;
  #max = DEFAULT_MAX_CHARS;
  #asked = false;
  #attached = 0;

  /** `closeFirst()` closes what is open over the box and says whether something was; Esc is for that then. */
  constructor(form, { onSend, onStop, onInput, closeFirst }) {
    Object.assign(this, { form, onSend, onStop, onInput, closeFirst });
    this.box = form.querySelector("textarea");
    this.button = form.querySelector(".send");
    this.hint = form.querySelector(".hint");
    this.box.enterKeyHint = isTouch() ? "enter" : "send";
    this.stops = new Stops(this.box);
    this.completion = new Completion(this.box, { library: () => this.#openLibrary(), template: (template) => this.#begin(template) });
    form.addEventListener("submit", (event) => this.#submitted(event));
    // The second click of a double click on Send is no Stop.
    this.button.addEventListener("click", (event) => event.detail > 1 && this.#running && event.preventDefault());
    this.box.addEventListener("input", () => this.#typed());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("keydown", (event) => this.#escape(event));
    new ResizeObserver(() => this.#holdHint()).observe(this.hint);
    this.#changed();
  }

  get maxChars() {
    return this.#max;
  }

  set maxChars(max) {
    if (Number.isInteger(max) && max > 0) this.#max = max;
    this.#changed();
  }

  set running(running) {
    this.#running = running;
    this.form.classList.toggle("running", running);
    setLabel(this.button, running ? (isTouch() ? "stopByTouch" : "stop") : "send");
    this.#changed();
  }

  /** How many images go along: a question may be of them alone. */
  set attached(number) {
    this.#attached = number;
    this.#changed();
  }

  get text() {
    return this.box.value;
  }

  /** Not told to `onInput`, which is for what a person types. */
  set text(text) {
    this.box.value = text;
    this.stops.end();
    this.completion.close();
    this.#changed();
  }

  focus() {
    // On a phone, focus would open the keyboard over the answer.
    if (matchMedia("(pointer: fine)").matches) this.box.focus();
  }

  #submitted(event) {
    event.preventDefault();
    if (this.#running) this.onStop();
    else this.#send();
  }

  /** The line that asked for it goes, as if the person had deleted it. */
  #openLibrary() {
    const { index: at } = OPENS_LIBRARY.exec(this.box.value);
    this.box.setSelectionRange(at, this.box.value.length);
    insertText(this.box, "");
    this.box.setSelectionRange(at, at); // Chromium puts it before a line break at the end
    tell("open-library");
  }

  #begin(template) {
    this.stops.begin(template);
    this.#changed();
  }

  #send() {
    if (OPENS_LIBRARY.test(this.box.value)) return this.#openLibrary();
    this.stops.fill();
    const question = this.box.value.trim();
    if (this.#isEmpty || this.#running || this.#length > this.#max) return;
    this.text = "";
    this.onSend(question);
  }

  #key(event) {
    if (composing(event)) return;
    if (this.completion.key(event)) return taken(event);
    if (this.stops.open) {
      const isTaken = this.stops.key(event);
      this.#changed();
      if (isTaken) return taken(event);
    }
    if (event.key === "ArrowUp" && !this.box.value && !hasModifier(event)) {
      event.preventDefault();
      return tell("edit-last");
    }
    if (!sends(event)) return;
    event.preventDefault();
    this.#send();
  }

  /** In another field, and where something lies over the page, Esc is for that. */
  #escape(event) {
    if (event.key !== "Escape" || composing(event) || event.defaultPrevented) return;
    if (document.querySelector("dialog[open], .sidebar-open")) return;
    if (this.closeFirst()) return;
    if (event.target !== this.box && event.target.matches?.("input, textarea")) return;
    if (this.#running) this.onStop();
  }

  get #isEmpty() {
    return !this.#length && !this.#attached;
  }

  get #length() {
    return countChars(this.box.value.trim());
  }

  #typed() {
    if (!this.box.value) this.stops.end();
    this.onInput(this.box.value);
    this.#changed();
  }

  #changed() {
    this.#grow();
    const length = this.#length;
    const over = length - this.#max;
    this.button.disabled = !this.#running && (this.#isEmpty || over > 0);
    this.hint.classList.toggle("warning", over > 0);
    if (over > 0) setText(this.hint, "tooLong", { over, max: this.#max });
    else if (length >= this.#max * COUNT_FROM) setText(this.hint, "charsLeft", { left: -over });
    else setText(this.hint, this.stops.open ? "hintStops" : "hint");
  }

  /** Beside many switches half a hint is none. */
  #holdHint() {
    this.hint.classList.toggle("cut", this.hint.scrollHeight > this.hint.clientHeight + 1);
  }

  /** Where the box does not grow by itself: measured once a frame, and not at all where it is surely full. */
  #grow() {
    if (GROWS_BY_ITSELF || this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.box.style.height = "auto";
      this.box.style.height = this.box.value.length > TALL_CHARS ? "100vh" : `${this.box.scrollHeight}px`;
    });
  }
}

const hasModifier = (event) => event.shiftKey || event.altKey || event.ctrlKey || event.metaKey;

function taken(event) {
  event.preventDefault();
  event.stopPropagation();
}
