/** The header above the conversation: its title, which can be edited in place, and its menu. */

import { subscribe } from "../base/bus.js";
import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";
import { editTitle, pinMark, setPin } from "./title.js";

export class SessionHead {
  #session = null;
  #asking = new Set(); // turns waiting for approval by the user, who may be in another tab
  #pin = pinMark();
  #text = el("span", { class: "head-text" });
  #narrow = matchMedia("(max-width: 860px)");

  /** `list`: the SessionList, which has the actions. `main` and `topbar`: the possible parents of the header. */
  constructor(list, { main, topbar }) {
    Object.assign(this, { list, main, topbar });
    this.heading = el("h1", { tabindex: "-1", on: { dblclick: () => this.rename() } }, this.#text, this.#pin);
    this.button = el("button", { class: "quiet head-menu", type: "button", label: "sessionActions", "aria-haspopup": "menu", "aria-expanded": "false",
      on: { click: () => list.menu(this.button, this.#session, () => this.rename()) } }, icon("dots"));
    this.element = el("div", { id: "session-head" }, this.heading, this.button);
    this.element.addEventListener("keydown", (event) => event.key === "F2" && this.rename());
    subscribe("approval", ({ turnId, asks }) => {
      this.#asking[asks ? "add" : "delete"](turnId);
      this.draw();
    });
    this.#narrow.addEventListener("change", () => this.#stand());
    this.#stand();
    this.show(null);
  }

  /** null: a conversation that is not known yet. */
  show(session) {
    this.#session = session;
    this.draw();
  }

  draw() {
    const session = this.#session;
    const title = session?.title || t(session ? "untitled" : "newChat");
    this.#text.textContent = title;
    this.heading.title = session ? title : "";
    this.button.hidden = !session;
    setPin(this.#pin, session?.hold);
    const name = session?.title ? `${session.title} · Wenmai` : "Wenmai 问脉";
    document.title = this.#asking.size ? t("approvalTitle", { title: name }) : name;
  }

  focus() {
    this.heading.focus({ preventScroll: true });
  }

  rename() {
    const session = this.#session;
    if (!session) return;
    const save = (title) => this.list.actions.rename(session, title);
    editTitle(this.heading, { title: session.title ?? "", save, home: this.heading });
  }

  /** Places the header on its own line on a wide screen, in the top bar on a narrow one. */
  #stand() {
    if (this.#narrow.matches) this.topbar.querySelector(".brand-name").after(this.element);
    else this.main.prepend(this.element);
  }
}
