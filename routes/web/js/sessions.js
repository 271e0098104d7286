/** The list of conversations: open, rename in place, delete after asking. */

import { deleteSession, listSessions, renameSession } from "./api.js";
import { confirmRemoval } from "./dialogs.js";
import { el, icon } from "./dom.js";
import { daysAgo, t } from "./i18n.js";

const groupOf = (days) => (days <= 0 ? "today" : days === 1 ? "yesterday" : "earlier");

export class SessionList {
  #sessions = [];
  #next = null;
  #current = null;

  /** `onDeleted(id)` tells the page, which may have that session open. */
  constructor(element, { onDeleted }) {
    Object.assign(this, { element, onDeleted });
  }

  async refresh() {
    try {
      const page = await listSessions();
      this.#sessions = page?.sessions ?? [];
      this.#next = page?.next ?? null;
      this.#draw();
    } catch {
      this.element.replaceChildren(el("p", { class: "faint", i18n: "sessionsFailed" }));
    }
  }

  set current(sessionId) {
    this.#current = sessionId;
    for (const row of this.element.querySelectorAll(".session")) this.#mark(row);
    document.title = this.#title() ? `${this.#title()} · Wenmai` : "Wenmai 问脉";
  }

  #title() {
    return this.#sessions.find((session) => session.session_id === this.#current)?.title ?? "";
  }

  #draw() {
    this.element.replaceChildren();
    if (!this.#sessions.length) this.element.append(el("p", { class: "faint", i18n: "noSessions" }));
    let group = "";
    for (const session of this.#sessions) {
      const next = groupOf(daysAgo(session.updated_at));
      if (next !== group) this.element.append(el("h3", { i18n: next }));
      group = next;
      this.element.append(this.#row(session));
    }
    if (this.#next) this.element.append(this.#moreButton());
    this.current = this.#current;
  }

  #row(session) {
    const { session_id: id, title } = session;
    const link = el("a", { class: "session-link", href: `#/s/${id}`, text: title || t("untitled") });
    const row = el("div", { class: "session", "data-session": id }, link, el("span", { class: "row-actions" },
      el("button", { class: "quiet", type: "button", label: "rename", on: { click: () => this.#rename(row, session) } }, icon("pencil")),
      el("button", { class: "quiet", type: "button", label: "remove", on: { click: () => this.#remove(session) } }, icon("trash"))));
    this.#mark(row);
    return row;
  }

  #mark(row) {
    const current = row.dataset.session === this.#current;
    row.classList.toggle("current", current);
    if (current) row.querySelector("a")?.setAttribute("aria-current", "page");
    else row.querySelector("a")?.removeAttribute("aria-current");
  }

  #rename(row, session) {
    const input = el("input", { class: "rename", value: session.title ?? "", maxlength: 200, label: "renameTo" });
    const close = async (keep) => {
      input.onblur = null;
      const title = input.value.trim();
      if (keep && title && title !== session.title) await renameSession(session.session_id, title).catch(() => {});
      await this.refresh();
    };
    input.onblur = () => close(true);
    input.onkeydown = (event) => {
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key === "Enter") close(true);
      if (event.key === "Escape") close(false);
    };
    row.replaceChildren(input);
    input.focus();
    input.select();
  }

  async #remove(session) {
    if (!(await confirmRemoval("deleteSession", { title: session.title || t("untitled") }))) return;
    await deleteSession(session.session_id).catch(() => {});
    this.onDeleted(session.session_id);
    await this.refresh();
  }

  #moreButton() {
    const load = async () => {
      const page = await listSessions(this.#next).catch(() => null);
      this.#sessions.push(...(page?.sessions ?? []));
      this.#next = page?.next ?? null;
      this.#draw();
    };
    return el("button", { class: "text-button", type: "button", i18n: "more", on: { click: load } });
  }
}
