/** The question box. Enter sends (except on touch devices), Shift+Enter adds a line, Esc stops; never during IME composition. */

import { publish } from "../base/bus.js";
import { isSendKey, isTouch, setLabel, setText } from "../base/dom.js";
import { countChars, insertText } from "../base/insert.js";
import { Completion } from "./completion.js";
import { TabStops } from "./tab-stops.js";

const DEFAULT_MAX_CHARS = 8000;
const COUNT_FROM = 0.9;
const HALF_LINE_PX = 8; // of the hint; Firefox counts what letters exceed their line by
const TALL_CHARS = 5000; // certainly taller than the box may grow
const OPENS_LIBRARY = new RegExp(String.raw`(?:^|\n)[ \t]*[/\uff0f](?:模块|library)\s*$`, "i"); // as the last line; the text above stays
const GROWS_NATIVELY = CSS.supports("field-sizing", "content");

// 229: Safari ends the composition before it reports the key that ended it.
const composing = (event) => event.isComposing || event.keyCode === 229;

export class QuestionBox {
  #running = false;
  #max = DEFAULT_MAX_CHARS;
  #asked = false;
  #attached = 0;

  /** `closeFirst()` closes whatever is open over the box and returns whether something was; then Esc does nothing else. */
  constructor(form, { onSend, onStop, onInput, closeFirst }) {
    Object.assign(this, { form, onSend, onStop, onInput, closeFirst });
    this.box = form.querySelector("textarea");
    this.button = form.querySelector(".send");
    this.hint = form.querySelector(".hint");
    this.box.enterKeyHint = isTouch() ? "enter" : "send";
    this.tabStops = new TabStops(this.box);
    this.completion = new Completion(this.box, { library: () => this.#openLibrary(), template: (template) => this.#begin(template) });
    form.addEventListener("submit", (event) => this.#submitted(event));
    // The second click of a double click on Send must not act as Stop.
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

  /** The number of attached images; a question may consist of images alone. */
  set attached(number) {
    this.#attached = number;
    this.#changed();
  }

  get text() {
    return this.box.value;
  }

  /** Does not call `onInput`, which is for the user's typing. */
  set text(text) {
    this.box.value = text;
    this.tabStops.end();
    this.completion.close();
    this.#changed();
  }

  focus() {
    // On a phone, focusing would open the keyboard over the answer.
    if (matchMedia("(pointer: fine)").matches) this.box.focus();
  }

  #submitted(event) {
    event.preventDefault();
    if (this.#running) this.onStop();
    else this.#send();
  }

  /** Removes the line with the command, as if the user had deleted it. */
  #openLibrary() {
    const { index: at } = OPENS_LIBRARY.exec(this.box.value);
    this.box.setSelectionRange(at, this.box.value.length);
    insertText(this.box, "");
    this.box.setSelectionRange(at, at); // Chromium places the caret before a trailing line break
    publish("open-library");
  }

  #begin(template) {
    this.tabStops.begin(template);
    this.#changed();
  }

  #send() {
    if (OPENS_LIBRARY.test(this.box.value)) return this.#openLibrary();
    this.tabStops.fill();
    const question = this.box.value.trim();
    if (this.#isEmpty || this.#running || this.#length > this.#max) return;
    this.text = "";
    this.onSend(question);
  }

  #key(event) {
    if (composing(event)) return;
    if (this.completion.key(event)) return taken(event);
    if (this.tabStops.open) {
      const isTaken = this.tabStops.key(event);
      this.#changed();
      if (isTaken) return taken(event);
    }
    if (event.key === "ArrowUp" && !this.box.value && !hasModifier(event)) {
      event.preventDefault();
      return publish("edit-last");
    }
    if (!isSendKey(event)) return;
    event.preventDefault();
    this.#send();
  }

  /** Esc stops the answer, unless another field or an overlay has a use for it. */
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
    if (!this.box.value) this.tabStops.end();
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
    else setText(this.hint, this.tabStops.open ? "hintStops" : "hint");
  }

  /** Hides the hint if many switches leave no room for all of it. */
  #holdHint() {
    this.hint.classList.toggle("cut", this.hint.scrollHeight > this.hint.clientHeight + HALF_LINE_PX);
  }

  /** For browsers without `field-sizing`: measures once per frame, and not at all if the box is certainly full. */
  #grow() {
    if (GROWS_NATIVELY || this.#asked) return;
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
