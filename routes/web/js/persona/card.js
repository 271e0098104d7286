/** The persona of the conversation that is open, above the box: set, read, change, clear. */

import { readFileName } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { clearPersona, readSession, setPersona } from "../api/sessions.js";
import { el, icon, isWriting, setText } from "../base/dom.js";
import { firstChars } from "../base/insert.js";
import { wordsFor, writePersona } from "./dialog.js";

const DEFAULT_MAX_CHARS = 4000;
const FIRST_CHARS = 80;
const FEW_CHARS = 30;
const firstWords = (text, most = FIRST_CHARS) => firstChars(text.slice(0, most * 4).split(/\s+/).join(" ").trim(), most);

export class PersonaCard {
  #place = { id: null }; // the conversation that is open: it gets its id when it begins
  #reading = 0;
  #persona = null;
  #drawn = null; // the persona that is in view, as JSON; null: something else is
  #typed = new Map();
  #fileNames = new Map();
  maxChars = DEFAULT_MAX_CHARS;
  element = el("div", { class: "persona" });

  /**
   * `keep(persona)`: that of a conversation which has not begun. `say(key, vars, act)` tells what was done.
   * `onReading()` gives what is called with the conversation once it is read.
   */
  constructor({ keep, say, onReading }) {
    Object.assign(this, { keep, say, onReading });
    this.#draw();
  }

  /** Another conversation is open; `chosen` is what it will begin with, if it has not begun. */
  show(sessionId, chosen = null) {
    this.#place = { id: sessionId };
    this.#persona = chosen;
    if (sessionId) this.#replace();
    else this.#draw();
    return this.refresh();
  }

  /** The conversation that had not begun has this id now; `late` was chosen when its first question was on its way. */
  async begun(sessionId, late = null) {
    this.#place.id = sessionId;
    if (late) await setPersona(sessionId, late).catch((error) => this.#keepLate(sessionId, late, error));
    return this.refresh();
  }

  /** What could not be set is offered again. */
  #keepLate(sessionId, { name = "", text }, error) {
    this.#typed.set(sessionId, { name, text });
    this.say(...wordsFor(error));
  }

  /** A command, or someone elsewhere, may have changed it. */
  async refresh() {
    const [place, reading] = [this.#place, ++this.#reading];
    const isNewest = () => place === this.#place && reading === this.#reading; // not older than what was set meanwhile
    if (!place.id) return;
    const onRead = this.onReading();
    try {
      const session = await readSession(place.id);
      if (!isNewest()) return;
      this.#is(session?.persona ?? null);
      onRead(session);
    } catch (error) {
      if (isNewest()) this.#unread(error);
    }
  }

  /** An item of the library, which was read on its card. */
  take({ batch_name: batch, title, content }) {
    return this.#set(this.#place, { name: title, text: content, batch_name: batch, item: title });
  }

  /** The first words of the persona that another would replace; "" for none. */
  get firstWords() {
    return this.#persona ? `${firstWords(this.#persona.text, FEW_CHARS)}…` : "";
  }

  /** The bus's "persona": the passage is shown first, and becomes one only when the person says so. */
  offer({ file_name: name, text, ...origin }) {
    if (origin.document_id) this.#fileNames.set(origin.document_id, name);
    return this.#write({ name: "", text: text ?? "" }, originOf(origin), name || "?");
  }

  /** Typed anew, or from where the dialog was closed the last time. */
  #begin() {
    return this.#write(this.#typed.get(this.#place.id) ?? { name: "", text: "" }, {});
  }

  async #change() {
    const place = this.#place;
    const source = await this.#sourceName();
    if (!this.#isAt(place) || !this.#persona) return; // another conversation is open by now, say
    const { name, text } = this.#persona;
    this.#write(this.#typed.get(place.id) ?? { name, text }, originOf(this.#persona), source);
  }

  async #write(start, origin, source = "") {
    const place = this.#place;
    const replaces = this.#persona?.text !== start.text ? this.firstWords : "";
    const save = (typed) => this.#set(place, { ...typed, ...origin });
    const left = await writePersona({ start, source, replaces, maxChars: this.maxChars, save });
    // A passage can be chosen again; what was typed cannot.
    if (left && (left.text !== start.text.trim() || left.name !== start.name)) this.#typed.set(place.id, left);
    else this.#typed.delete(place.id);
  }

  async #set(place, persona) {
    const stored = place.id ? await setPersona(place.id, persona) : persona;
    if (!place.id) this.keep(persona);
    if (this.#isAt(place)) this.#is(stored);
    for (const dialog of document.querySelectorAll("dialog[open]:not(.persona-dialog)")) dialog.close();
    this.say("personaIsSet");
  }

  /** What was cleared can be had back as long as the note is there. */
  async #clear() {
    const [place, cleared] = [this.#place, this.#persona];
    try {
      if (place.id) await clearPersona(place.id);
      else this.keep(null);
      if (!this.#isAt(place)) return;
      this.#is(null);
      const back = { name: cleared.name ?? "", text: cleared.text, ...originOf(cleared) };
      this.say("personaIsCleared", {}, ["personaBack", () => this.#set(place, back).catch((error) => this.say(...wordsFor(error)))]);
      if (!isWriting()) this.element.querySelector("button")?.focus();
    } catch (error) {
      this.say(...wordsFor(error));
    }
  }

  #isAt(place) {
    return place.id === this.#place.id;
  }

  #is(persona) {
    this.#reading += 1;
    this.#persona = persona;
    if (JSON.stringify(persona) !== this.#drawn) this.#draw();
  }

  /** A conversation that is not there has none; of one that cannot be read it is not known. */
  #unread(error) {
    if (error instanceof ApiError && error.status === 404) return this.#is(null);
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
    this.#tellSource(from);
    return el("details", { class: "persona-card" },
      el("summary", {}, icon("chevron"), el("span", { class: "persona-label", i18n: "persona" }),
        el("span", { class: "persona-line" }, name && el("b", { text: name }), el("span", { text: firstWords(text) })), from),
      el("div", { class: "persona-full", tabindex: "0", role: "group", label: "personaText", text }),
      el("div", { class: "persona-acts" }, el("span", { class: "faint", i18n: "personaNext" }),
        button("personaChange", () => this.#change()), button("personaClear", () => this.#clear())));
  }

  async #tellSource(node) {
    const { batch_name: batch, document_id: document } = this.#persona;
    if (batch) setText(node, "personaFrom", { name: batch });
    if (!document) return;
    const name = await this.#sourceName();
    setText(node, name ? "personaFrom" : "personaFromUnknown", { name });
  }

  /** The file's name; "" for none, or one that is gone. */
  async #sourceName() {
    const id = this.#persona?.document_id;
    if (id && !this.#fileNames.has(id)) this.#fileNames.set(id, await readFileName(id).catch(() => ""));
    return this.#fileNames.get(id) ?? "";
  }
}

const ORIGIN = ["document_id", "chunk_id", "batch_name", "item"];
const originOf = (from) => Object.fromEntries(ORIGIN.filter((name) => from[name]).map((name) => [name, from[name]]));
const button = (key, act) => el("button", { class: "text-button", type: "button", i18n: key, on: { click: act } });
