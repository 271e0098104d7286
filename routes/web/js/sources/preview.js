/**
 * A glance at a source where an answer marks it: file, place and key passage, beside the mark.
 *
 * For a mouse over the mark and for a focus that the keyboard brought; a finger opens the card instead. It
 * stands above the page, so nothing moves, stays while the pointer is on it, and Esc sends it away.
 */
import { el } from "../base/dom.js";
import { citationOf } from "./cards.js";
import { fileName, isErased, placeOf } from "./card.js";
import { atAGlance } from "./passage.js";

const SHOW_MS = 120;
const LEAVE_MS = 160;
const GAP = 6;
const EDGE = 12;
const ID = "cite-preview";

export class CitePreview {
  #box = el("div", { class: "cite-preview", id: ID, role: "tooltip", hidden: true });
  #mark = null;
  #title = "";
  #timer = 0;

  /** `root` is what holds the marks. */
  constructor(root) {
    document.body.append(this.#box);
    document.addEventListener("pointerover", (event) => event.pointerType !== "touch" && this.#over(event.target));
    root.addEventListener("focusin", ({ target }) => target.matches(".cite:focus-visible") && this.#show(target));
    root.addEventListener("focusout", () => this.#hide());
    root.addEventListener("click", () => this.#hide());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#hide());
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  #over(target) {
    const mark = target.closest?.(".cite");
    if (target.closest?.(`#${ID}`) || (mark && mark === this.#mark)) return clearTimeout(this.#timer);
    if (mark) this.#later(() => mark.isConnected && this.#show(mark), SHOW_MS);
    else if (this.#mark && this.#mark !== document.activeElement) this.#later(() => this.#hide(), LEAVE_MS);
    else if (!this.#mark) clearTimeout(this.#timer);
  }

  #later(act, ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, ms);
  }

  #show(mark) {
    const citation = citationOf(mark);
    if (!citation || mark === this.#mark) return;
    this.#hide();
    this.#mark = mark;
    this.#title = mark.title;
    mark.removeAttribute("title"); // the browser's own tip would lie over this one
    mark.setAttribute("aria-describedby", ID);
    this.#box.replaceChildren(...glance(citation));
    this.#box.hidden = false;
    this.#place(mark.getBoundingClientRect());
  }

  /** The glance of the keyboard goes along: the focus itself may have scrolled its mark into view. */
  #scrolled() {
    if (this.#mark && this.#mark === document.activeElement) this.#place(this.#mark.getBoundingClientRect());
    else this.#hide();
  }

  /** Above the mark where there is room, and within the window. */
  #place(mark) {
    const { offsetWidth: width, offsetHeight: height } = this.#box;
    const left = Math.min(mark.left, document.documentElement.clientWidth - width - EDGE);
    const above = mark.top - height - GAP;
    this.#box.style.left = `${Math.max(EDGE, left)}px`;
    this.#box.style.top = `${above >= EDGE ? above : mark.bottom + GAP}px`;
  }

  #hide() {
    clearTimeout(this.#timer);
    if (!this.#mark) return;
    this.#mark.removeAttribute("aria-describedby");
    this.#mark.title = this.#title;
    this.#mark = null;
    this.#box.hidden = true;
  }
}

function glance(citation) {
  const passage = atAGlance(citation.key_passage || citation.text);
  return [
    el("p", { class: "preview-head" }, fileName(citation), ...placeOf(citation)),
    isErased(citation) ? el("p", { class: "preview-passage", i18n: "sourceErased" })
      : el("p", { class: "preview-passage", text: passage }),
  ];
}
