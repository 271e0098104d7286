/**
 * What a person has begun in each conversation and not sent yet, kept in this tab over switching and reload, and shown
 * to the holder of the same key alone.
 *
 * A state holds `text`, `filters`, `persona` and `choices` (of a conversation that has not begun), `sent`, a question
 * that the server may not have got, and `returned`, one that it has not got. The conversation that has not begun is null.
 */

import { ownerMark } from "../api/http.js";
import { hear } from "../base/bus.js";

const MOST = 40;
const MOST_CHARS = 120_000;
const PAUSE_MS = 300;
const INDEX = "wenmai.drafts";
const BEGUN_LATER = "new";
const keyOf = (name) => `wenmai.draft.${name}`;

export class Drafts {
  #states = new Map();
  #changed = new Set();
  #timer = 0;
  #owner = ownerMark();

  constructor() {
    hear("key-changed", () => this.#adopt());
    addEventListener("pagehide", () => this.#flush());
    document.addEventListener("visibilitychange", () => document.hidden && this.#flush());
  }

  read(conversation) {
    const name = conversation ?? BEGUN_LATER;
    if (!this.#states.has(name)) this.#states.set(name, stored(this.#owner + name));
    return this.#states.get(name);
  }

  /** Empty parts go. */
  write(conversation, change) {
    const whole = Object.entries({ ...this.read(conversation), ...change });
    const name = conversation ?? BEGUN_LATER;
    this.#states.set(name, Object.fromEntries(whole.filter(([, part]) => part)));
    this.#later(name);
  }

  /** It is known what became of `question`, sent in that conversation, perhaps before that had begun. */
  settle(question, conversation) {
    for (const id of [conversation, null]) if (this.read(id).sent === question) this.write(id, { sent: "" });
  }

  /** The conversation that had not begun is this one now; its persona and choices are the server's to keep. */
  begun(conversation) {
    const state = this.read(null);
    this.#states.set(BEGUN_LATER, {});
    this.#later(BEGUN_LATER);
    this.write(conversation, { ...state, persona: null, choices: null });
  }

  /** What was begun before a key was given is its holder's, beside what they had left here. */
  #adopt() {
    for (const name of this.#states.keys()) store(this.#owner + name, {});
    this.#owner = ownerMark();
    for (const [name, state] of this.#states) {
      this.#states.set(name, { ...stored(this.#owner + name), ...state });
      this.#later(name);
    }
  }

  #later(name) {
    this.#changed.add(name);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#flush(), PAUSE_MS);
  }

  #flush() {
    for (const name of this.#changed) store(this.#owner + name, this.#states.get(name));
    this.#changed.clear();
  }
}

function stored(name) {
  try {
    return JSON.parse(sessionStorage.getItem(keyOf(name))) ?? {};
  } catch {
    return {};
  }
}

/** Storage may be forbidden or full: then the state lasts until reload. The oldest make room. */
function store(name, state) {
  try {
    const text = JSON.stringify(state);
    const names = (JSON.parse(sessionStorage.getItem(INDEX)) ?? []).filter((other) => other !== name);
    sessionStorage.removeItem(keyOf(name));
    if (text !== "{}" && text.length <= MOST_CHARS) names.push(name);
    while (names.length > MOST) sessionStorage.removeItem(keyOf(names.shift()));
    sessionStorage.setItem(INDEX, JSON.stringify(names));
    if (names.at(-1) === name) sessionStorage.setItem(keyOf(name), text);
  } catch {
    // kept in memory
  }
}
