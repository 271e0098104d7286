/** A menu of actions next to the button that opened it, in the top layer so that nothing clips or covers it. */

import { el, icon } from "./dom.js";

const GAP_PX = 4;
const EDGE_PX = 8;
const STEPS = { ArrowDown: (at) => at + 1, ArrowUp: (at) => at - 1, Home: () => 0, End: () => -1 };

let shown = null;

/**
 * Opens the menu, or closes it if this button opened it. `label` and `note` are like `i18n` of el().
 * An item is {i18n, icon, run, danger}; with `checked` (a boolean) it is one of several choices.
 */
export function toggleMenu(opener, { label, items, note }) {
  const again = shown?.opener === opener;
  closeMenu();
  if (!again) shown = new Menu(opener, label, items, note);
}

export const menuIsOpen = () => shown !== null;

export function closeMenu() {
  shown?.close();
}

class Menu {
  #ended = new AbortController();

  constructor(opener, label, items, note) {
    this.opener = opener;
    const list = el("div", { role: "menu", label }, ...items.map((item) => this.#item(item)));
    this.element = el("div", { class: "menu", popover: "manual" }, list, note && el("p", { class: "menu-note", id: "menu-note", i18n: note }));
    if (note) list.setAttribute("aria-describedby", "menu-note");
    opener.setAttribute("aria-expanded", "true");
    document.body.append(this.element);
    this.element.showPopover?.(); // without the top layer, its z-index has to do
    this.#place();
    this.#listen();
    (list.querySelector("[aria-checked=true]") ?? list.firstElementChild).focus();
  }

  close() {
    const hadFocus = this.element.contains(document.activeElement);
    shown = null;
    this.#ended.abort();
    this.opener.setAttribute("aria-expanded", "false");
    if (hadFocus) this.opener.focus({ preventScroll: true });
    this.element.remove();
  }

  #item({ i18n, icon: name, run, danger, checked }) {
    const role = checked === undefined ? "menuitem" : "menuitemradio";
    const choose = () => {
      this.close();
      run();
    };
    return el("button", { class: danger ? "menu-item danger" : "menu-item", type: "button", role, tabindex: "-1",
      "aria-checked": checked === undefined ? null : String(checked), on: { click: choose } },
      icon(name), el("span", { i18n }), checked && icon("check"));
  }

  #listen() {
    const until = { signal: this.#ended.signal };
    const outside = ({ target }) => this.element.contains(target) || this.opener.contains(target) || this.close();
    const moved = ({ target }) => target !== document && target.contains(this.opener) && this.close();
    this.element.addEventListener("keydown", (event) => this.#key(event), until);
    document.addEventListener("pointerdown", outside, { ...until, capture: true });
    document.addEventListener("scroll", moved, { ...until, capture: true });
    addEventListener("resize", () => this.close(), until);
  }

  /** No key event leaves the menu: Esc, for example, would stop an answer. */
  #key(event) {
    event.stopPropagation();
    if (event.key === "Tab") return this.close(); // and continue from the button that opened it
    if (event.key === "Escape") this.close();
    else if (event.key in STEPS) this.#move(STEPS[event.key]);
    else return;
    event.preventDefault();
  }

  #move(step) {
    const items = [...this.element.querySelectorAll(".menu-item")];
    items.at(step(items.indexOf(document.activeElement)) % items.length).focus();
  }

  /** Places the menu below the button, or above it if there is no room; always inside the window. */
  #place() {
    const at = this.opener.getBoundingClientRect();
    const { width, height } = this.element.getBoundingClientRect();
    const below = at.bottom + GAP_PX + height + EDGE_PX <= innerHeight;
    const top = below ? at.bottom + GAP_PX : at.top - GAP_PX - height;
    const left = Math.min(at.right - width, innerWidth - EDGE_PX - width);
    this.element.style.top = `${Math.max(EDGE_PX, top)}px`;
    this.element.style.left = `${Math.max(EDGE_PX, left)}px`;
  }
}
