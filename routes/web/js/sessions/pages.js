/** The conversations as far as they are read: the newest first, page by page, or those that a search found. */

import { listSessions } from "../api/sessions.js";
import { tell } from "../base/bus.js";

export class SessionPages {
  sessions = [];
  /** What to search for; what `sessions` were found by is `shown`, null before the first reply. */
  query = "";
  shown = null;
  #next = null;
  #changes = 0;
  /** One request after the other: the last word is the newest. */
  #queue = Promise.resolve();

  get hasMore() {
    return this.#next !== null;
  }

  /** Reads the newest again; what was read before and is older stays. */
  refresh() {
    return this.#enqueue(() => this.#refresh());
  }

  more() {
    return this.#enqueue(() => this.#more());
  }

  find(sessionId) {
    return this.sessions.find((session) => session.session_id === sessionId);
  }

  /** Whether `session` belongs between those that are read: a list without it is older than the session. */
  lack(session) {
    if (!session || this.shown !== "" || this.find(session.session_id)) return false;
    return !this.hasMore || session.updated_at > this.sessions.at(-1).updated_at;
  }

  /** Puts what a reply says of a session over what is known of it. */
  change(session) {
    this.#changes += 1;
    this.sessions = this.sessions.map((known) => (known.session_id === session.session_id ? { ...known, ...session } : known));
  }

  remove(sessionId) {
    this.#changes += 1;
    this.sessions = this.sessions.filter((session) => session.session_id !== sessionId);
  }

  #enqueue(read) {
    const reading = this.#queue.then(read);
    this.#queue = reading.catch(() => {}); // whoever asked hears of it
    return reading;
  }

  /** Once more when something was renamed, say, meanwhile: the reply may be older than that. */
  async #read(which) {
    const changes = this.#changes;
    const page = await listSessions(which);
    if (page?.choices) tell("choices", page.choices);
    return changes === this.#changes ? page : this.#read(which);
  }

  async #refresh() {
    const { query } = this;
    const page = await this.#read({ query });
    if (query !== this.query) return; // what is looked for by now is read next
    const fresh = page?.sessions ?? [];
    const next = page?.next ?? null;
    const older = next !== null && query === this.shown ? olderThan(fresh, this.sessions) : [];
    if (!older.length) this.#next = next;
    this.sessions = [...fresh, ...older];
    this.shown = query;
  }

  async #more() {
    if (!this.hasMore || this.query !== this.shown) return;
    const page = await this.#read({ before: this.#next, query: this.query });
    this.sessions = [...this.sessions, ...without(this.sessions, page?.sessions ?? [])];
    this.#next = page?.next ?? null;
  }
}

const without = (known, sessions) => {
  const ids = new Set(known.map((session) => session.session_id));
  return sessions.filter((session) => !ids.has(session.session_id));
};

/** Those of `known` that come after `fresh`; none when the two do not meet, for others may lie between them. */
function olderThan(fresh, known) {
  const rest = without(fresh, known);
  if (rest.length === known.length) return [];
  const last = fresh.at(-1).updated_at;
  return rest.filter((session) => session.updated_at <= last);
}
