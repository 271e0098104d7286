/** Edits a question in place. Enter sends (except on touch devices), Shift+Enter adds a line, Esc cancels. */

import { el, isSendKey, isTouch, setText } from "../base/dom.js";

export class QuestionEditor {
  #hint = el("span", { class: "hint" });
  #send = el("button", { class: "button primary", type: "submit", i18n: "editSend" });

  /** `maxChars` counts code points, as the server does. `onSend(question)` gets the trimmed text after the editor closed. */
  constructor(view, { maxChars, onSend, onClose }) {
    Object.assign(this, { view, maxChars, onSend, onClose });
    this.asked = view.element.querySelector(".asked");
    this.words = this.asked.lastElementChild; // its images stay visible: they are sent again
    this.box = el("textarea", { label: "editQuestion", rows: 1, enterkeyhint: isTouch() ? "enter" : "send", on: {
      input: () => this.#changed(), keydown: (event) => this.#key(event) } });
    this.box.value = view.question;
    this.element = el("form", { class: "question-editor", on: { submit: (event) => this.#submitted(event) } }, this.box,
      el("div", { class: "editor-row" }, this.#hint,
        el("button", { class: "button", type: "button", i18n: "cancel", on: { click: () => this.close() } }), this.#send));
  }

  /** The new text; "" if unchanged. */
  get changed() {
    const text = this.box.value.trim();
    return text === this.view.question ? "" : text;
  }

  open() {
    this.opener = document.activeElement;
    this.words.hidden = true;
    this.asked.after(this.element);
    this.view.element.classList.add("editing");
    this.#changed();
    this.box.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Closes the editor and returns the focus to where it was. */
  close() {
    const held = this.element.contains(document.activeElement);
    this.element.remove();
    this.words.hidden = false;
    this.view.element.classList.remove("editing");
    if (held) this.opener.focus({ preventScroll: true });
    this.onClose();
  }

  #submitted(event) {
    event.preventDefault();
    const question = this.box.value.trim();
    if (this.#send.disabled) return;
    this.close();
    this.onSend(question);
  }

  #key(event) {
    // 229: Safari ends the composition before it reports the Enter that ended it.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Escape") {
      event.stopPropagation(); // must not stop an answer running elsewhere on the page
      this.close();
    } else if (isSendKey(event)) {
      this.#submitted(event);
    }
  }

  #changed() {
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
    const length = Array.from(this.box.value.trim()).length;
    const over = length - this.maxChars;
    this.#send.disabled = length === 0 || over > 0;
    this.#hint.classList.toggle("warning", over > 0);
    if (over > 0) setText(this.#hint, "tooLong", { over, max: this.maxChars });
    else setText(this.#hint, "editHint");
  }
}
