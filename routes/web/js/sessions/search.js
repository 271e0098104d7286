/** The search field above the list: searches shortly after typing stops; Esc clears it. */

const PAUSE_MS = 200;

export class SessionSearch {
  #timer = 0;
  #last = "";

  /** `onSearch(text)` gets each new text, "" to end the search. */
  constructor(field, onSearch) {
    Object.assign(this, { field, onSearch });
    field.addEventListener("input", (event) => this.#changed(event.isComposing));
    field.addEventListener("compositionend", () => this.#changed(false));
    field.addEventListener("keydown", (event) => this.#key(event));
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  #key(event) {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter") this.#search();
    if (event.key !== "Escape" || !this.field.value) return;
    event.stopPropagation(); // would stop an answer or close the drawer
    event.preventDefault();
    this.field.value = "";
    this.#search();
  }

  /** Waits until an IME composition has ended. */
  #changed(composing) {
    clearTimeout(this.#timer);
    if (!composing) this.#timer = setTimeout(() => this.#search(), this.field.value ? PAUSE_MS : 0);
  }

  #search() {
    clearTimeout(this.#timer);
    const text = this.field.value.trim();
    if (text === this.#last) return;
    this.#last = text;
    this.onSearch(text);
  }
}
