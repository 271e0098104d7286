/** The open conversation's persona, above the box: show, set, change, clear. */

import { readFileName } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { clearPersona, readSession, setPersona } from "../api/sessions.js";
import { el, icon, isTyping, setText } from "../base/dom.js";
import { firstChars } from "../base/insert.js";
import { wordsFor, writePersona } from "./dialog.js";

const DEFAULT_MAX_CHARS = 4000;
const FIRST_CHARS = 80;
const FEW_CHARS = 30;
const firstWords = (text, most = FIRST_CHARS) => firstChars(text.slice(0, most * 4).split(/\s+/).join(" ").trim(), most);

export class PersonaCard {
  #place = { id: null }; // the open conversation; a new one gets its id when it begins
  #reading = 0;
  #persona = null;
  #drawn = null; // the persona shown, as JSON; null while something else is shown
  #typed = new Map();
  #fileNames = new Map();
  maxChars = DEFAULT_MAX_CHARS;
  element = el("div", { class: "persona" });

  /**
   * `keep(persona)` stores the persona of a new conversation. `say(key, vars, act)` reports what was done.
   * `onReading()` returns a callback for the conversation once it is loaded.
   */
  constructor({ keep, say, onReading }) {
    Object.assign(this, { keep, say, onReading });
    this.#draw();
  }

  /** Shows another conversation's persona; `chosen` is that of a new one. */
  show(sessionId, chosen = null) {
    this.#place = { id: sessionId };
    this.#persona = chosen;
    if (sessionId) this.#replace();
    else this.#draw();
    return this.refresh();
  }

  /** The new conversation got this id; `late` is a persona chosen while its first question was being sent. */
  async begun(sessionId, late = null) {
    this.#place.id = sessionId;
    if (late) await setPersona(sessionId, late).catch((error) => this.#keepLate(sessionId, late, error));
    return this.refresh();
  }

  /** Offers a persona again that could not be set. */
  #keepLate(sessionId, { name = "", text }, error) {
    this.#typed.set(sessionId, { name, text });
    this.say(...wordsFor(error));
  }

  /** Reloads the persona, which a command or another tab may have changed. */
  async refresh() {
    const [place, reading] = [this.#place, ++this.#reading];
    const isNewest = () => place === this.#place && reading === this.#reading; // nothing was set or loaded since
    if (!place.id) return;
    const onRead = this.onReading();
    try {
      const session = await readSession(place.id);
      if (!isNewest()) return;
      this.#apply(session?.persona ?? null);
      onRead(session);
    } catch (error) {
      if (isNewest()) this.#unread(error);
    }
  }

  /** Sets an item of the library, which the user has already read there. */
  take({ batch_name: batch, title, content }) {
    return this.#set(this.#place, { name: title, text: content, batch_name: batch, item: title });
  }

  /** The first words of the current persona; "" for none. */
  get firstWords() {
    return this.#persona ? `${firstWords(this.#persona.text, FEW_CHARS)}…` : "";
  }

  /** Handles the "persona" event: shows the passage for the user to confirm. */
  offer({ file_name: name, text, ...origin }) {
    if (origin.document_id) this.#fileNames.set(origin.document_id, name);
    return this.#write({ name: "", text: text ?? "" }, originOf(origin), name || "?");
  }

  /** Starts empty, or with what was typed when the dialog was last closed. */
  #begin() {
    return this.#write(this.#typed.get(this.#place.id) ?? { name: "", text: "" }, {});
  }

  async #change() {
    const place = this.#place;
    const source = await this.#sourceName();
    if (!this.#isAt(place) || !this.#persona) return; // for example another conversation was opened
    const { name, text } = this.#persona;
    this.#write(this.#typed.get(place.id) ?? { name, text }, originOf(this.#persona), source);
  }

  async #write(start, origin, source = "") {
    const place = this.#place;
    const replaces = this.#persona?.text !== start.text ? this.firstWords : "";
    const save = (typed) => this.#set(place, { ...typed, ...origin });
    const left = await writePersona({ start, source, replaces, maxChars: this.maxChars, save });
    // A passage can be chosen again; typed text would be lost.
    if (left && (left.text !== start.text.trim() || left.name !== start.name)) this.#typed.set(place.id, left);
    else this.#typed.delete(place.id);
  }

  async #set(place, persona) {
    const stored = place.id ? await setPersona(place.id, persona) : persona;
    if (!place.id) this.keep(persona);
    if (this.#isAt(place)) this.#apply(stored);
    for (const dialog of document.querySelectorAll("dialog[open]:not(.persona-dialog)")) dialog.close();
    this.say("personaIsSet");
  }

  /** Clears the persona; it can be restored while the note is shown. */
  async #clear() {
    const [place, cleared] = [this.#place, this.#persona];
    try {
      if (place.id) await clearPersona(place.id);
      else this.keep(null);
      if (!this.#isAt(place)) return;
      this.#apply(null);
      const back = { name: cleared.name ?? "", text: cleared.text, ...originOf(cleared) };
      this.say("personaIsCleared", {}, ["personaBack", () => this.#set(place, back).catch((error) => this.say(...wordsFor(error)))]);
      if (!isTyping()) this.element.querySelector("button")?.focus();
    } catch (error) {
      this.say(...wordsFor(error));
    }
  }

  #isAt(place) {
    return place.id === this.#place.id;
  }

  #apply(persona) {
    this.#reading += 1;
    this.#persona = persona;
    if (JSON.stringify(persona) !== this.#drawn) this.#draw();
  }

  /** A missing conversation has no persona; for one that cannot be read it is unknown. */
  #unread(error) {
    if (error instanceof ApiError && error.status === 404) return this.#apply(null);
    if (this.#persona) return;
    this.#replace(button("personaUnread", () => this.refresh()));
  }

  #draw() {
    this.#replace(this.#persona ? this.#card() : button("personaAdd", () => this.#begin()));
    this.#drawn = JSON.stringify(this.#persona);
  }

  #replace(...nodes) {
    this.element.replaceChildren(...nodes);
    this.#drawn = null;
  }

  #card() {
    const { name, text } = this.#persona;
    const from = el("span", { class: "persona-from" });
    this.#showSource(from);
    return el("details", { class: "persona-card" },
      el("summary", {}, icon("chevron"), el("span", { class: "persona-label", i18n: "persona" }),
        el("span", { class: "persona-line" }, name && el("b", { text: name }), el("span", { text: firstWords(text) })), from),
      el("div", { class: "persona-full", tabindex: "0", role: "group", label: "personaText", text }),
      el("div", { class: "persona-acts" }, el("span", { class: "faint", i18n: "personaNext" }),
        button("personaChange", () => this.#change()), button("personaClear", () => this.#clear())));
  }

  async #showSource(node) {
    const { batch_name: batch, document_id: document } = this.#persona;
    if (batch) setText(node, "personaFrom", { name: batch });
    if (!document) return;
    const name = await this.#sourceName();
    setText(node, name ? "personaFrom" : "personaFromUnknown", { name });
  }

  /** The source document's file name; "" if there is none or it no longer exists. */
  async #sourceName() {
    const id = this.#persona?.document_id;
    if (id && !this.#fileNames.has(id)) this.#fileNames.set(id, await readFileName(id).catch(() => ""));
    return this.#fileNames.get(id) ?? "";
  }
}

const ORIGIN = ["document_id", "chunk_id", "batch_name", "item"];
const originOf = (from) => Object.fromEntries(ORIGIN.filter((name) => from[name]).map((name) => [name, from[name]]));
const button = (key, act) => el("button", { class: "text-button", type: "button", i18n: key, on: { click: act } });
