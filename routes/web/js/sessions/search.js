/** The field above the list: what is typed is searched for a moment later; Esc clears it. */

const PAUSE_MS = 200;

export class SessionSearch {
  #timer = 0;
  #last = "";

  /** `onSearch(text)` hears each new text, "" when there is nothing to search for. */
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
    event.stopPropagation(); // it would stop an answer, or close the drawer
    event.preventDefault();
    this.field.value = "";
    this.#search();
  }

  /** Half a word of an input method finds nothing. */
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
