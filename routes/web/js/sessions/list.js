/** The list of conversations, which refreshes itself and keeps the user's position. */

import { readSession } from "../api/sessions.js";
import { el, icon, setTitle } from "../base/dom.js";
import { daysAgo, formatMonth, t } from "../base/i18n.js";
import { SessionActions, showSessionMenu } from "./actions.js";
import { SessionPages } from "./pages.js";
import { editTitle, pinMark, setPin } from "./title.js";

const POLL_MS = 4_000;

export class SessionList {
  #pages = new SessionPages();
  #rows = new Map();
  #headings = new Map();
  #current = null;
  #later = 0;
  /** The open session, if it is on none of the loaded pages. */
  #offPage = null;
  #more = el("button", { class: "text-button", type: "button", i18n: "more", on: { click: () => this.#loadMore() } });

  /**
   * `onErased(id)` notifies the page, which may have that session open; `onCurrent(session)` gets the open session, or
   * null while unknown; `leafOf(id)` returns the end of its shown branch; `isAnswering(id)` whether this page waits for
   * an answer there; `announce(text)` speaks to screen readers.
   */
  constructor(element, { onErased, onCurrent, leafOf, isAnswering, announce }) {
    Object.assign(this, { element, onCurrent, isAnswering, announce });
    this.actions = new SessionActions({
      onChanged: (session) => session && this.#changed(session),
      onErased: (id) => this.#erased(id, onErased),
      leafOf,
    });
    new IntersectionObserver(([entry]) => entry.isIntersecting && this.#loadMore(), { root: element, rootMargin: "200px" })
      .observe(this.#more);
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    element.parentElement.addEventListener("keydown", (event) => this.#key(event));
  }

  async refresh() {
    await this.#read();
    await this.#readOffPage();
    if (this.#pages.isMissing(this.#offPage)) await this.#read(); // it began while the list was being loaded
  }

  /** Lists only conversations with `text` in their title or turns; "" lists all. */
  async search(text) {
    this.#pages.query = text;
    this.element.setAttribute("aria-busy", "true");
    await this.refresh();
    if (this.#pages.query !== text) return; // a newer search will report
    this.element.removeAttribute("aria-busy");
    this.element.scrollTop = 0;
    if (text && this.#pages.shown === text) this.announce(this.#pages.sessions.length ? t("sessionsMatch", { n: this.#count }) : t("sessionsMatchNone"));
  }

  set current(sessionId) {
    if (sessionId === this.#current) return this.#markAnswering();
    this.#current = sessionId;
    this.#offPage = null;
    this.#mark();
  }

  /** The user opened a session: announces its title once it is known. */
  async opened() {
    const id = this.#current;
    if (!this.#known(id)) await (this.#pages.shown === null ? this.#readOffPage() : this.refresh());
    const title = this.#known(id)?.title;
    if (title && id === this.#current) this.announce(t("opened", { title }));
  }

  /** Opens a session's menu; `rename()` starts editing its title. */
  menu(opener, session, rename) {
    showSessionMenu(opener, session, { actions: this.actions, rename, days: this.expireDays });
  }

  async #read() {
    try {
      await this.#pages.refresh();
      if (this.#pages.shown !== null) this.draw(); // null: superseded by a search
    } catch {
      if (this.#pages.shown !== this.#pages.query) this.#showFailure();
    }
  }

  draw() {
    const { sessions } = this.#pages;
    const listed = new Set(sessions.map((session) => session.session_id));
    for (const id of this.#rows.keys()) if (!listed.has(id)) this.#rows.delete(id);
    const end = this.#pages.hasMore ? [this.#more] : this.#pages.partial ? [el("p", { class: "faint", i18n: "sessionsPartial" })] : [];
    arrange(this.element, sessions.length ? [...this.#grouped(sessions), ...end] : [this.#nothing()]);
    this.#mark();
  }

  get #count() {
    return `${this.#pages.sessions.length}${this.#pages.hasMore ? "+" : ""}`;
  }

  #known(id) {
    return this.#pages.find(id) ?? (this.#offPage?.session_id === id ? this.#offPage : null);
  }

  #grouped(sessions) {
    const nodes = [];
    let group = null;
    for (const session of sessions) {
      const { key, title } = groupOf(session.updated_at);
      if (key !== group) nodes.push(this.#heading(key, title));
      group = key;
      nodes.push(this.#row(session).element);
    }
    return nodes;
  }

  #heading(key, title) {
    if (!this.#headings.has(key)) this.#headings.set(key, el("h2"));
    const heading = this.#headings.get(key);
    if (heading.textContent !== title) heading.textContent = title;
    return heading;
  }

  #row(session) {
    const id = session.session_id;
    const handlers = { menu: (...about) => this.menu(...about), rename: (...to) => this.actions.rename(...to) };
    if (this.#rows.has(id)) this.#rows.get(id).show(session);
    else this.#rows.set(id, new SessionRow(session, handlers));
    return this.#rows.get(id);
  }

  #nothing() {
    const { shown } = this.#pages;
    return el("p", { class: "faint", i18n: shown ? ["noMatches", { text: shown }] : "noSessions" });
  }

  #showFailure() {
    this.#rows.clear();
    const retry = el("button", { class: "text-button", type: "button", i18n: "readAgain", on: { click: () => this.refresh() } });
    this.element.replaceChildren(el("p", { class: "faint", role: "status", i18n: "sessionsFailed" }), retry);
  }

  async #loadMore() {
    try {
      await this.#pages.more();
      this.draw();
    } catch {
      this.announce(t("sessionsFailed")); // the button stays for another try
    }
  }

  #mark() {
    for (const [id, row] of this.#rows) row.current = id === this.#current;
    this.#markAnswering();
    this.onCurrent(this.#current && this.#known(this.#current));
  }

  /** Marks sessions with a running answer: those that this page waits for and, as last reported, those of others. */
  #markAnswering() {
    let elsewhere = false;
    for (const [id, row] of this.#rows) {
      const [isHere, isPending] = [this.isAnswering(id), row.session.state === "pending"];
      row.answering = isHere || isPending;
      elsewhere ||= isPending && !isHere;
    }
    clearTimeout(this.#later);
    if (elsewhere) this.#later = setTimeout(() => document.hidden || this.refresh(), POLL_MS); // there is no event for its end
  }

  /** Loads the open session separately if it is on none of the loaded pages, as an old one opened by its address. */
  async #readOffPage() {
    const id = this.#current;
    if (!id || this.#pages.find(id)) return;
    const session = await readSession(id).catch(() => null); // the conversation itself shows the error
    if (id !== this.#current) return;
    this.#offPage = session;
    this.#mark();
  }

  #changed(session) {
    this.#pages.change(session);
    if (this.#offPage?.session_id === session.session_id) this.#offPage = { ...this.#offPage, ...session };
    this.draw();
  }

  #erased(id, notify) {
    const row = this.#rows.get(id)?.element;
    const at = document.activeElement; // do not take the focus from a user who types elsewhere
    const next = row?.contains(at) && (row.nextElementSibling ?? row.previousElementSibling);
    this.#pages.remove(id);
    this.draw();
    if (next || at === document.body) (next?.querySelector?.("a") ?? this.element.querySelector("a"))?.focus({ preventScroll: true });
    notify(id);
    this.refresh();
  }

  /** Arrow keys move between conversations, and from the search field to the first one. */
  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.isComposing || !event.target.matches(".session-link, [type=search]")) return;
    const links = [...this.element.querySelectorAll(".session-link")];
    links[links.indexOf(event.target) + step]?.focus();
    event.preventDefault();
  }
}

/** One conversation in the list: a link, and a button for its menu. */
class SessionRow {
  #pin = pinMark();
  #title = el("span", { class: "session-title" });
  #match = el("span", { class: "session-match", hidden: true });
  #answering = el("span", { class: "answering", hidden: true }, el("span", { class: "offscreen", i18n: "sessionAnswering" }));

  /** `handlers`: {menu(opener, session, rename), rename(session, title)}. */
  constructor(session, handlers) {
    this.handlers = handlers;
    this.link = el("a", { class: "session-link" }, this.#title, this.#answering, this.#pin, this.#match);
    this.button = el("button", { class: "quiet row-menu", type: "button", "aria-haspopup": "menu", "aria-expanded": "false",
      on: { click: () => handlers.menu(this.button, this.session, () => this.rename()) } }, icon("dots"));
    this.element = el("div", { class: "session", "data-session": session.session_id }, this.link, this.button);
    this.element.addEventListener("keydown", (event) => event.key === "F2" && this.rename());
    setTitle(this.#answering, "sessionAnswering");
    this.show(session);
  }

  set answering(answering) {
    this.#answering.hidden = !answering;
  }

  show(session) {
    this.session = session;
    const title = session.title || t("untitled");
    if (this.#title.textContent !== title) this.#title.textContent = title;
    this.link.title = title;
    const { match } = session; // the turn that matches the search
    this.link.href = `#/s/${session.session_id}${match ? `/${match.turn_id}` : ""}`;
    this.#match.textContent = match?.text ?? "";
    this.#match.hidden = !match;
    this.link.classList.toggle("matched", Boolean(match));
    this.button.setAttribute("aria-label", t("sessionMenu", { title }));
    setPin(this.#pin, session.hold);
  }

  set current(current) {
    this.element.classList.toggle("current", current);
    if (current) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
  }

  rename() {
    const save = (title) => this.handlers.rename(this.session, title);
    editTitle(this.link, { title: this.session.title ?? "", save, home: this.link });
  }
}

/* Groups conversations under headings by the day of their newest turn. */

const WEEK_DAYS = 7;

/** {key, title}; the key identifies the group. An invalid time counts as long ago. */
function groupOf(updatedAt) {
  const days = daysAgo(updatedAt);
  if (days <= 0) return { key: "today", title: t("today") };
  if (days === 1) return { key: "yesterday", title: t("yesterday") };
  if (days < WEEK_DAYS) return { key: "week", title: t("week") };
  if (Number.isNaN(days)) return { key: "earlier", title: t("earlier") };
  return { key: updatedAt.slice(0, 7), title: formatMonth(updatedAt) };
}

/* Reorders nodes without disturbing the focused one. */

/** Makes `nodes` the children of `parent`, in order. The focused node is not moved; the scroll position is kept. */
function arrange(parent, nodes) {
  if (parent.childNodes.length === nodes.length && nodes.every((node, at) => node === parent.childNodes[at])) return;
  const top = parent.scrollTop;
  const shown = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!shown.has(node)) node.remove();
  // A moved node loses the focus, and a field in it loses its input.
  const focused = nodes.find((node) => node.parentNode === parent && node.contains(document.activeElement));
  const at = nodes.indexOf(focused);
  for (const node of nodes.slice(0, Math.max(at, 0))) parent.insertBefore(node, focused);
  parent.append(...nodes.slice(at + 1));
  parent.scrollTop = top;
}
