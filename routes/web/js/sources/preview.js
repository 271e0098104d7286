/**
 * A preview of a source next to its citation: file, place and key passage.
 *
 * Shown on mouse hover and on keyboard focus; on touch, the card opens instead. It overlays the page so that nothing
 * moves, stays while the pointer is on it, and closes on Esc.
 */
import { el } from "../base/dom.js";
import { citationOf } from "./cards.js";
import { fileName, isErased, placeOf } from "./card.js";
import { plainPreview } from "./passage.js";

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

  /** `root` contains the citations. */
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
    mark.removeAttribute("title"); // the browser's own tooltip would cover this one
    mark.setAttribute("aria-describedby", ID);
    this.#box.replaceChildren(...previewContent(citation));
    this.#box.hidden = false;
    this.#place(mark.getBoundingClientRect());
  }

  /** A preview opened by keyboard focus moves along, because focusing may have scrolled the citation into view. */
  #scrolled() {
    if (this.#mark && this.#mark === document.activeElement) this.#place(this.#mark.getBoundingClientRect());
    else this.#hide();
  }

  /** Above the citation if there is room, and inside the window. */
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

function previewContent(citation) {
  const passage = plainPreview(citation.key_passage || citation.text);
  return [
    el("p", { class: "preview-head" }, fileName(citation), ...placeOf(citation)),
    isErased(citation) ? el("p", { class: "preview-passage", i18n: "sourceErased" })
      : el("p", { class: "preview-passage", text: passage }),
  ];
}
