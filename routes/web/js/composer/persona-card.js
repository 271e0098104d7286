/** The persona of the conversation that is open, above the box: set, read, change, clear. */

import { clearPersona, readFileName, readPersona, setPersona } from "../api/persona.js";
import { ApiError } from "../api/http.js";
import { el, icon, setText } from "../base/dom.js";
import { firstChars } from "./insert.js";
import { wordsFor, writePersona } from "./persona-dialog.js";

const DEFAULT_MAX_CHARS = 4000;
const FIRST_CHARS = 80;
const FEW_CHARS = 30;
const firstWords = (text, most = FIRST_CHARS) => firstChars(text.slice(0, most * 4).split(/\s+/).join(" ").trim(), most);

export class PersonaCard {
  #sessionId = null;
  #persona = null;
  #typed = new Map();
  #fileNames = new Map();
  maxChars = DEFAULT_MAX_CHARS;
  element = el("div", { class: "persona" });

  /** `keep(persona)`: that of a conversation which has not begun. `say(key, vars, act)` tells what was done. */
  constructor({ keep, say }) {
    Object.assign(this, { keep, say });
    this.#draw();
  }

  /** Another conversation is open; `kept` is what it will begin with, if it has not begun. */
  show(sessionId, kept = null) {
    this.#sessionId = sessionId;
    this.#persona = kept;
    if (sessionId) this.element.replaceChildren();
    else this.#draw();
    return this.refresh();
  }

  /** The conversation that had not begun has this id now. */
  begun(sessionId) {
    this.#sessionId = sessionId;
    return this.refresh();
  }

  /** A command, or someone elsewhere, may have changed it. */
  async refresh() {
    const sessionId = this.#sessionId;
    if (!sessionId) return;
    try {
      const persona = await readPersona(sessionId);
      if (sessionId === this.#sessionId) this.#is(persona);
    } catch (error) {
      if (sessionId === this.#sessionId) this.#unread(error);
    }
  }

  /** The bus's "persona": the passage is shown first, and becomes one only when the person says so. */
  offer({ file_name: name, text, document_id: document, chunk_id: chunk }) {
    if (document) this.#fileNames.set(document, name);
    const origin = { ...(document ? { document_id: document } : {}), ...(chunk ? { chunk_id: chunk } : {}) };
    return this.#write({ name: "", text: text ?? "" }, origin, name || "?");
  }

  /** Typed anew, or from where the dialog was closed the last time. */
  #begin() {
    return this.#write(this.#typed.get(this.#sessionId) ?? { name: "", text: "" }, {});
  }

  async #change() {
    const { name, text } = this.#persona;
    this.#write(this.#typed.get(this.#sessionId) ?? { name, text }, originOf(this.#persona), await this.#sourceName());
  }

  async #write(start, origin, source = "") {
    const sessionId = this.#sessionId;
    const replaces = this.#persona && this.#persona.text !== start.text ? `${firstWords(this.#persona.text, FEW_CHARS)}…` : "";
    const save = (typed) => this.#set(sessionId, { ...typed, ...origin });
    const left = await writePersona({ start, source, replaces, maxChars: this.maxChars, save });
    // A passage can be chosen again; what was typed cannot.
    if (left && (left.text !== start.text.trim() || left.name !== start.name)) this.#typed.set(sessionId, left);
    else this.#typed.delete(sessionId);
  }

  async #set(sessionId, persona) {
    const kept = sessionId ? await setPersona(sessionId, persona) : persona;
    if (!sessionId) this.keep(persona);
    if (sessionId === this.#sessionId) this.#is(kept);
    for (const dialog of document.querySelectorAll("dialog[open]:not(.persona-dialog)")) dialog.close();
    this.say("personaIsSet");
  }

  /** What was cleared can be had back as long as the note is there. */
  async #clear() {
    const [sessionId, gone] = [this.#sessionId, this.#persona];
    try {
      if (sessionId) await clearPersona(sessionId);
      else this.keep(null);
      if (sessionId === this.#sessionId) this.#is(null);
      const back = { name: gone.name ?? "", text: gone.text, ...originOf(gone) };
      this.say("personaIsCleared", {}, ["personaBack", () => this.#set(sessionId, back).catch((error) => this.say(...wordsFor(error)))]);
      this.element.querySelector("button")?.focus();
    } catch (error) {
      this.say(...wordsFor(error));
    }
  }

  #is(persona) {
    const same = JSON.stringify(persona) === JSON.stringify(this.#persona) && this.element.childElementCount > 0;
    this.#persona = persona;
    if (!same) this.#draw();
  }

  /** A conversation that is not there has none; of one that cannot be read it is not known. */
  #unread(error) {
    if (error instanceof ApiError && error.status === 404) return this.#is(null);
    if (this.#persona) return;
    this.element.replaceChildren(button("personaUnread", () => this.refresh()));
  }

  #draw() {
    this.element.replaceChildren(this.#persona ? this.#card() : button("personaAdd", () => this.#begin()));
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
    if (!this.#persona.document_id) return;
    const name = await this.#sourceName();
    setText(node, name ? "personaFrom" : "personaFromGone", { name });
  }

  /** The file's name; "" for none, or one that is gone. */
  async #sourceName() {
    const id = this.#persona?.document_id;
    if (id && !this.#fileNames.has(id)) this.#fileNames.set(id, await readFileName(id).catch(() => ""));
    return this.#fileNames.get(id) ?? "";
  }
}

const originOf = ({ document_id: document, chunk_id: chunk }) =>
  ({ ...(document ? { document_id: document } : {}), ...(chunk ? { chunk_id: chunk } : {}) });
const button = (key, act) => el("button", { class: "text-button", type: "button", i18n: key, on: { click: act } });
