/**
 * All that surrounds the question box, put together: drafts, persona, filters, switches.
 *
 * A draft, and what the questions are limited to, belong to the conversation in which they were made: another
 * one has its own, and a new one begins with none.
 */

import { hear } from "../base/bus.js";
import { el, isWriting, setText } from "../base/dom.js";
import { t } from "../base/i18n.js";
import { insertQuote, oneLine } from "../base/insert.js";
import { openLibrary } from "../library/picker.js";
import { PersonaCard } from "../persona/card.js";
import { QuestionBox } from "./box.js";
import { Drafts } from "./drafts.js";
import { Filters, StaleLimits } from "./filters.js";
import { ImageTray } from "./images.js";
import { beginWithPersona, isDeleted, lostQuestion, lostTurn } from "./first-question.js";
import { Options } from "./options.js";
import { SearchSettings } from "./search-settings.js";

export class Desk {
  #conversation; // undefined until the page has opened one
  #drafts = new Drafts();
  #askedHere = new Set(); // conversations, since the page was loaded
  #stopped = false; // by the reader
  #note = el("p", { class: "composer-note", role: "status" });

  /** `ask(question, images)` and `stop()` are the conversation's; `openSession(id)` opens one that was made here. */
  constructor(form, { ask, stop, openSession }) {
    Object.assign(this, { ask, openSession });
    const say = (...words) => this.say(...words);
    this.filters = new Filters((filters) => this.#drafts.write(this.#conversation, { filters }));
    this.staleLimits = new StaleLimits(this.filters, say);
    this.search = new SearchSettings(form, this.filters);
    this.images = new ImageTray(form, { canSee: () => this.options.vision, say, onChange: (n) => (this.box.attached = n) });
    this.options = new Options(form, { search: this.search, filters: this.filters, say,
      keep: (choices) => this.#drafts.write(null, { choices }),
      onModel: () => this.images.modelChanged() });
    this.persona = new PersonaCard({ say, keep: (persona) => this.#drafts.write(null, { persona }),
      onReading: () => this.options.reading() });
    this.box = new QuestionBox(form, { onSend: (question) => this.submit(question), onStop: () => { this.#stopped = true; stop(); },
      onInput: (text) => this.#typed(text), closeFirst: () => this.search.close() });
    form.querySelector("#model").after(this.search.button, this.images.button);
    form.before(el("div", { id: "composer-head" }, this.#note, this.persona.element, this.filters.element));
    this.#listen();
  }

  /** As GET /settings/public has them. */
  set settings(settings) {
    this.box.maxChars = settings?.max_question_chars;
    this.options.canJudge = settings?.insert_block;
    this.options.tools = settings?.tools;
    if (settings?.max_persona_chars > 0) this.persona.maxChars = settings.max_persona_chars;
  }

  set running(running) {
    this.box.running = running;
  }

  focus() {
    this.box.focus();
  }

  /** Which conversation is open; null for one that has not begun. */
  set conversation(id) {
    if (id === this.#conversation) return;
    const early = this.#conversation === undefined ? this.box.text : ""; // typed before the scripts were there
    this.#conversation = id;
    this.#show(id);
    if (early) this.#putBefore(early, id);
  }

  #show(id) {
    const { text = "", filters, persona, choices } = this.#drafts.read(id);
    this.box.text = text;
    this.filters.show(filters);
    this.options.show(id, choices);
    this.persona.show(id, persona);
    this.images.show(id ?? null);
    this.say("");
    this.staleLimits.look();
    this.#recover(id);
  }

  /** The conversation that had not begun has this id now: what belongs to it goes along. */
  begun(id, { late = this.#drafts.read(null).persona } = {}) {
    if (this.#conversation) return;
    this.#drafts.begun(id);
    this.images.begun(id);
    this.#conversation = id;
    this.options.begun(id);
    this.persona.begun(id, late);
  }

  /** A turn's question is on its way from that conversation: asked in the box, in another's place, or once more. */
  asked({ question, repeats }, sessionId) {
    const id = sessionId ?? null;
    this.#askedHere.add(id);
    this.#stopped = false;
    if (!repeats) this.#drafts.write(id, { sent: question });
    this.#takeBack(question, id);
  }

  /** A turn there has ended; "failed" and "cancelled" may mean that the server has nothing of it. */
  async ended(view, sessionId) {
    this.persona.refresh();
    if (view.repeats) return;
    const lost = await lostTurn(view, { stoppedHere: this.#stopped });
    if (lost === null || view.status === "running") return; // not known, or tried again meanwhile
    const deleted = lost && sessionId && (await isDeleted(sessionId));
    this.#drafts.settle(view.question, sessionId);
    if (lost) this.#giveBack(view.question, sessionId ?? null, view.images);
    if (deleted && sessionId === this.#conversation) this.say("sessionDeleted", {}, ["askAnew", () => this.#carryOver(sessionId)]);
  }

  /** What was typed elsewhere in that conversation, and has no place there any more. */
  keep(text, sessionId) {
    this.#drafts.settle(text, sessionId ?? null);
    this.#putBefore(text, sessionId ?? null);
  }

  /** Asks, as soon as the persona that was chosen for this conversation is set. */
  async submit(question) {
    this.say("");
    const from = this.#conversation ?? null;
    this.#askedHere.add(from);
    this.#drafts.write(from, { text: this.box.text, sent: question });
    const { persona } = this.#drafts.read(from);
    const images = this.images.take();
    try {
      if (from === null && persona) await beginWithPersona(persona, (id) => this.#move(id));
      this.ask(question, images);
    } catch (error) {
      this.#giveBack(question, from, images);
      this.say(...error.words);
    }
  }

  async #move(id) {
    if (this.#conversation !== null) return false;
    this.begun(id, { late: null }); // it is set already
    await this.openSession(id);
    return this.#conversation === id;
  }

  /** A word about what was done; `act`: [key, function] of a button beside it. Without a key it goes. */
  say(key, vars, act) {
    const [label, run] = act ?? [];
    const once = () => { this.say(""); run(); };
    const words = el("span");
    if (key) setText(words, key, vars);
    this.#note.replaceChildren(...(key ? [words] : []));
    if (act) this.#note.append(el("button", { class: "text-button", type: "button", i18n: label, on: { click: once } }));
  }

  #listen() {
    hear("quote", ({ file_name: name, text }) => this.#quote(`[引用：${oneLine(name ?? "")}] `, text));
    hear("open-library", () => this.#openLibrary());
    hear("persona", (passage) => this.persona.offer(passage));
    hear("filter", (limits) => this.filters.limit(limits));
    hear("choices", (choices) => { this.options.last = choices; });
    hear("key-changed", () => this.#show(this.#conversation));
  }

  #typed(text) {
    if (this.#note.childElementCount) this.say("");
    this.#drafts.write(this.#conversation ?? null, { text });
  }

  #openLibrary() {
    const caret = this.#caret();
    openLibrary({
      left: caret,
      replaces: this.persona.firstWords,
      setPersona: (item) => this.persona.take(item),
      quote: ({ batch_name: batch, title, content }) => this.#quote(t("libraryLead", { batch, title }), content),
    });
  }

  #quote(lead, text) {
    const caret = this.#caret();
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    caret();
    const { put, of } = insertQuote(this.box.box, lead, text, this.box.maxChars);
    if (put < of) this.say(put ? "quoteCut" : "quoteNoRoom", { put, of });
  }

  /** A dialog that closes gives the box its focus back, with the caret at its beginning: this puts it where it was. */
  #caret() {
    const { selectionStart: start, selectionEnd: end } = this.box.box;
    return () => this.box.box.setSelectionRange(start, end);
  }

  #giveBack(question, id, images = []) {
    const stay = keepEnd();
    this.#drafts.write(id, { returned: question, sent: "" });
    this.#putBefore(question, id);
    if (id !== (this.#conversation ?? null)) return;
    this.images.giveBack(images.filter(({ url }) => url));
    if (!isWriting()) this.box.focus();
    stay();
  }

  /** Given back, and now tried again: not to be asked twice. */
  #takeBack(question, id) {
    const { text, returned } = this.#drafts.read(id);
    if (returned === question && text === question) this.#put("", id);
    if (returned) this.#drafts.write(id, { returned: "" });
  }

  /** Before what was typed meanwhile, if anything was; once only. */
  #putBefore(question, id) {
    const { text = "" } = this.#drafts.read(id);
    if (!text.startsWith(question)) this.#put(text.trim() ? `${question}\n\n${text}` : question, id);
  }

  /** Into that conversation's box, whichever is open. */
  #put(text, id) {
    this.#drafts.write(id, { text });
    if (id === (this.#conversation ?? null)) this.box.text = text;
  }

  /** What is in that conversation's box, into a new conversation's. */
  #carryOver(id) {
    this.#putBefore(this.#drafts.read(id).text ?? "", null);
    this.#put("", id);
    location.hash = "#/";
  }

  async #recover(id) {
    const { sent } = this.#drafts.read(id);
    if (!sent || this.#askedHere.has(id)) return;
    const lost = await lostQuestion(id, sent);
    if (lost && this.#drafts.read(id).sent === sent) this.#giveBack(sent, id);
    else if (lost === false) this.#drafts.write(id, { sent: "" });
  }
}

/* The box grows over the end of the conversation, where it may say why a question is back in it. */

const NEAR_PX = 300; // an error's card may have come below since the page went along

/** To be called before the box grows; what it gives, after. A reader who went up stays there. */
function keepEnd() {
  const page = document.scrollingElement;
  const near = page.scrollHeight - page.scrollTop - innerHeight < NEAR_PX;
  return () => near && requestAnimationFrame(() => scrollTo({ top: page.scrollHeight, behavior: "instant" }));
}
