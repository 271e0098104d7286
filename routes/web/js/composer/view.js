/**
 * The composer: the question box with drafts, persona, filters and switches.
 *
 * Drafts and filters belong to the conversation in which they were made: each conversation has its own, and a new one
 * starts with none.
 */

import { subscribe } from "../base/bus.js";
import { el, isTyping, setText } from "../base/dom.js";
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

export class Composer {
  #conversation; // undefined until the page has opened one
  #drafts = new Drafts();
  #askedHere = new Set(); // conversations in which a question was asked since the page was loaded
  #stopped = false; // by the user
  #note = el("p", { class: "composer-note", role: "status" });

  /** `ask(question, images)` and `stop()` act on the conversation; `openSession(id)` opens one that was created here. */
  constructor(form, { ask, stop, openSession }) {
    Object.assign(this, { ask, openSession });
    const say = (...words) => this.say(...words);
    this.filters = new Filters((filters) => this.#drafts.write(this.#conversation, { filters }));
    this.staleLimits = new StaleLimits(this.filters, say);
    this.search = new SearchSettings(form, this.filters);
    this.images = new ImageTray(form, { blindness: () => this.options.blindness, say, onChange: (n) => (this.box.attached = n) });
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

  /** The reply of GET /settings/public. */
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

  /** The id of the open conversation; null for one that has not begun. */
  set conversation(id) {
    if (id === this.#conversation) return;
    const early = this.#conversation === undefined ? this.box.text : ""; // typed before the scripts had loaded
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

  /** The new conversation got this id: moves everything that belongs to it. */
  begun(id, { late = this.#drafts.read(null).persona } = {}) {
    if (this.#conversation) return;
    this.#drafts.begun(id);
    this.images.begun(id);
    this.#conversation = id;
    this.options.begun(id);
    this.persona.begun(id, late);
  }

  /** A question was sent in that conversation: from the box, as another version, or as a retry. */
  asked({ question, repeats }, sessionId) {
    const id = sessionId ?? null;
    this.#askedHere.add(id);
    this.#stopped = false;
    if (!repeats) this.#drafts.write(id, { sent: question });
    this.#takeBack(question, id);
  }

  /** A turn has ended there; "failed" and "cancelled" may mean that it never reached the server. */
  async ended(view, sessionId) {
    this.persona.refresh();
    if (view.repeats) return;
    const lost = await lostTurn(view, { stoppedHere: this.#stopped });
    if (lost === null || view.status === "running") return; // unknown, or retried in the meantime
    const deleted = lost && sessionId && (await isDeleted(sessionId));
    this.#drafts.settle(view.question, sessionId);
    if (lost) this.#giveBack(view.question, sessionId ?? null, view.images);
    if (lost && view.errorCode === "session_busy" && sessionId === this.#conversation) this.say("sessionBusy");
    if (deleted && sessionId === this.#conversation) this.say("sessionDeleted", {}, ["askAnew", () => this.#carryOver(sessionId)]);
  }

  /** Keeps text typed elsewhere in that conversation (for example in an editor) that can no longer stay there. */
  keep(text, sessionId) {
    this.#drafts.settle(text, sessionId ?? null);
    this.#putBefore(text, sessionId ?? null);
  }

  /** Asks the question once the persona chosen for this conversation has been set. */
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
    this.begun(id, { late: null }); // the persona is already set
    await this.openSession(id);
    return this.#conversation === id;
  }

  /** Shows a note; `act`: [key, function] of a button next to it. Without a key, clears it. */
  say(key, vars, act) {
    const [label, run] = act ?? [];
    const once = () => { this.say(""); run(); };
    const words = el("span");
    if (key) setText(words, key, vars);
    this.#note.replaceChildren(...(key ? [words] : []));
    if (act) this.#note.append(el("button", { class: "text-button", type: "button", i18n: label, on: { click: once } }));
  }

  #listen() {
    subscribe("quote", ({ file_name: name, text }) => this.#quote(`[引用：${oneLine(name ?? "")}] `, text));
    subscribe("open-library", () => this.#openLibrary());
    subscribe("persona", (passage) => this.persona.offer(passage));
    subscribe("filter", (limits) => this.filters.limit(limits));
    subscribe("choices", (choices) => { this.options.last = choices; });
    subscribe("key-changed", () => this.#show(this.#conversation));
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

  /** Returns a function that restores the caret: a closing dialog refocuses the box with the caret at its start. */
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
    if (!isTyping()) this.box.focus();
    stay();
  }

  /** Removes a returned question from the box when it is retried, so that it is not asked twice. */
  #takeBack(question, id) {
    const { text, returned } = this.#drafts.read(id);
    if (returned === question && text === question) this.#put("", id);
    if (returned) this.#drafts.write(id, { returned: "" });
  }

  /** Inserts the question before anything typed in the meantime, unless it is already there. */
  #putBefore(question, id) {
    const { text = "" } = this.#drafts.read(id);
    if (!text.startsWith(question)) this.#put(text.trim() ? `${question}\n\n${text}` : question, id);
  }

  /** Sets that conversation's text, whether or not it is open. */
  #put(text, id) {
    this.#drafts.write(id, { text });
    if (id === (this.#conversation ?? null)) this.box.text = text;
  }

  /** Moves that conversation's text to a new conversation. */
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

/* The growing box would cover the end of the conversation, which may explain why a question was returned to it. */

const NEAR_PX = 300; // an error card may have been added since the page last scrolled

/** Call before the box grows, and the returned function afterwards. A user who scrolled up stays there. */
function keepEnd() {
  const page = document.scrollingElement;
  const near = page.scrollHeight - page.scrollTop - innerHeight < NEAR_PX;
  return () => near && requestAnimationFrame(() => scrollTo({ top: page.scrollHeight, behavior: "instant" }));
}
