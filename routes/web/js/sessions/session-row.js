/** One conversation in the list: a link, and a button for its menu. */

import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";
import { editTitle } from "./edit-title.js";
import { pinMark, setPin } from "./pin.js";

export class SessionRow {
  #pin = pinMark();
  #title = el("span", { class: "session-title" });

  /** `acts`: {menu(opener, session, rename), rename(session, title)}. */
  constructor(session, acts) {
    this.acts = acts;
    this.link = el("a", { class: "session-link", href: `#/s/${session.session_id}` }, this.#title, this.#pin);
    this.button = el("button", { class: "quiet row-menu", type: "button", "aria-haspopup": "menu", "aria-expanded": "false",
      on: { click: () => acts.menu(this.button, this.session, () => this.rename()) } }, icon("dots"));
    this.element = el("div", { class: "session", "data-session": session.session_id }, this.link, this.button);
    this.element.addEventListener("keydown", (event) => event.key === "F2" && this.rename());
    this.show(session);
  }

  show(session) {
    this.session = session;
    const title = session.title || t("untitled");
    if (this.#title.textContent !== title) this.#title.textContent = title;
    this.link.title = title;
    this.button.setAttribute("aria-label", t("sessionMenu", { title }));
    setPin(this.#pin, session.hold);
  }

  set current(current) {
    this.element.classList.toggle("current", current);
    if (current) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
  }

  rename() {
    const save = (title) => this.acts.rename(this.session, title);
    editTitle(this.link, { title: this.session.title ?? "", save, home: this.link });
  }
}
