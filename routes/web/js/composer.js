/** The question box. Enter sends, Shift+Enter breaks the line, Esc stops; never while an IME composes. */

import { setLabel, setText } from "./dom.js";

const DEFAULT_MAX_CHARS = 8000;
const COUNT_FROM = 0.9;

export class Composer {
  #running = false;
  #max = DEFAULT_MAX_CHARS;

  constructor(form, { onSend, onStop }) {
    Object.assign(this, { form, onSend, onStop });
    this.box = form.querySelector("textarea");
    this.button = form.querySelector(".send");
    this.hint = form.querySelector(".hint");
    form.addEventListener("submit", (event) => this.#submitted(event));
    this.box.addEventListener("input", () => this.#changed());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("keydown", (event) => this.#escape(event));
    this.#changed();
  }

  set maxChars(max) {
    if (Number.isInteger(max) && max > 0) this.#max = max;
    this.#changed();
  }

  set running(running) {
    this.#running = running;
    this.form.classList.toggle("running", running);
    setLabel(this.button, running ? "stop" : "send");
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

  #send() {
    const question = this.box.value.trim();
    if (!question || this.#running || this.#length > this.#max) return;
    this.box.value = "";
    this.#changed();
    this.onSend(question);
  }

  #key(event) {
    // 229: Safari ends the composition before it tells us about the Enter that ended it.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key !== "Enter" || event.shiftKey || event.altKey) return;
    event.preventDefault();
    this.#send();
  }

  #escape(event) {
    if (event.key !== "Escape" || event.isComposing || event.keyCode === 229) return;
    if (this.#running && !document.querySelector("dialog[open]")) this.onStop();
  }

  /** The server counts code points, not UTF-16 units. */
  get #length() {
    const text = this.box.value.trim();
    return text.length < this.#max * COUNT_FROM ? text.length : Array.from(text).length;
  }

  #changed() {
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
    const length = this.#length;
    const over = length - this.#max;
    this.button.disabled = !this.#running && (length === 0 || over > 0);
    this.hint.classList.toggle("warning", over > 0);
    if (over > 0) setText(this.hint, "tooLong", { over, max: this.#max });
    else if (length >= this.#max * COUNT_FROM) setText(this.hint, "charsLeft", { left: -over });
    else setText(this.hint, "hint");
  }
}
