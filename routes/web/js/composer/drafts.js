/**
 * Unsent input per conversation, stored in this tab so that it survives switching and reloading, and shown only to
 * the holder of the same key.
 *
 * A state has `text`, `filters`, `persona` and `choices` (only of a new conversation), `sent` (a question that may not
 * have reached the server) and `returned` (one that did not). The new conversation's id is null.
 */

import { ownerPrefix } from "../api/http.js";
import { subscribe } from "../base/bus.js";

const MAX_DRAFTS = 40;
const MAX_CHARS = 120_000;
const PAUSE_MS = 300;
const INDEX = "wenmai.drafts";
const NEW = "new";
const keyOf = (name) => `wenmai.draft.${name}`;

export class Drafts {
  #states = new Map();
  #changed = new Set();
  #timer = 0;
  #owner = ownerPrefix();

  constructor() {
    subscribe("key-changed", () => this.#adopt());
    addEventListener("pagehide", () => this.#flush());
    document.addEventListener("visibilitychange", () => document.hidden && this.#flush());
  }

  read(conversation) {
    const name = conversation ?? NEW;
    if (!this.#states.has(name)) this.#states.set(name, stored(this.#owner + name));
    return this.#states.get(name);
  }

  /** Merges `change` into the state; empty parts are removed. */
  write(conversation, change) {
    const whole = Object.entries({ ...this.read(conversation), ...change });
    const name = conversation ?? NEW;
    this.#states.set(name, Object.fromEntries(whole.filter(([, part]) => part)));
    this.#later(name);
  }

  /** The outcome of `question`, sent in that conversation (perhaps before it had begun), is known. */
  settle(question, conversation) {
    for (const id of [conversation, null]) if (this.read(id).sent === question) this.write(id, { sent: "" });
  }

  /** The new conversation got this id; the server now stores its persona and choices. */
  begun(conversation) {
    const state = this.read(null);
    this.#states.set(NEW, {});
    this.#later(NEW);
    this.write(conversation, { ...state, persona: null, choices: null });
  }

  /** Input from before a key was entered goes to the key's holder, merged with what they had left here. */
  #adopt() {
    for (const name of this.#states.keys()) store(this.#owner + name, {});
    this.#owner = ownerPrefix();
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

/** Evicts the oldest states to make room. If storage is forbidden or full, the state lasts until reload. */
function store(name, state) {
  try {
    const text = JSON.stringify(state);
    const names = (JSON.parse(sessionStorage.getItem(INDEX)) ?? []).filter((other) => other !== name);
    sessionStorage.removeItem(keyOf(name));
    if (text !== "{}" && text.length <= MAX_CHARS) names.push(name);
    while (names.length > MAX_DRAFTS) sessionStorage.removeItem(keyOf(names.shift()));
    sessionStorage.setItem(INDEX, JSON.stringify(names));
    if (names.at(-1) === name) sessionStorage.setItem(keyOf(name), text);
  } catch {
    // it stays in memory
  }
}
