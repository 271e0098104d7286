/** The conversations loaded so far, newest first, page by page; all of them or the results of a search. */

import { listSessions } from "../api/sessions.js";
import { publish } from "../base/bus.js";

export class SessionPages {
  sessions = [];
  /** The text to search for; `shown` is the query that `sessions` belong to, null before the first reply. */
  query = "";
  shown = null;
  /** Whether the server found more matches than it returned. */
  partial = false;
  #next = null;
  #changes = 0;
  /** Serializes the requests, so that the last reply is the newest. */
  #queue = Promise.resolve();

  get hasMore() {
    return this.#next !== null;
  }

  /** Reloads the first page; older conversations already loaded are kept. */
  refresh() {
    return this.#enqueue(() => this.#refresh());
  }

  more() {
    return this.#enqueue(() => this.#more());
  }

  find(sessionId) {
    return this.sessions.find((session) => session.session_id === sessionId);
  }

  /** Whether `session` is missing from the loaded range, which means that the list is outdated. */
  isMissing(session) {
    if (!session || this.shown !== "" || this.find(session.session_id)) return false;
    return !this.hasMore || session.updated_at > this.sessions.at(-1).updated_at;
  }

  /** Merges a reply's fields into the listed session. */
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
    this.#queue = reading.catch(() => {}); // the caller handles the error
    return reading;
  }

  /** Retries if a session was renamed or removed meanwhile, because the reply may be outdated. */
  async #read(which) {
    const changes = this.#changes;
    const page = await listSessions(which);
    if (page?.choices) publish("choices", page.choices);
    return changes === this.#changes ? page : this.#read(which);
  }

  async #refresh() {
    const { query } = this;
    const page = await this.#read({ query });
    if (query !== this.query) return; // the newer query is loaded next
    const fresh = page?.sessions ?? [];
    const next = page?.next ?? null;
    const older = next !== null && query === this.shown ? olderThan(fresh, this.sessions) : [];
    if (!older.length) this.#next = next;
    this.sessions = [...fresh, ...older];
    this.shown = query;
    this.partial = Boolean(page?.partial);
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

/** The sessions of `known` that are older than `fresh`; none if the two do not overlap, as others may lie between. */
function olderThan(fresh, known) {
  const rest = without(fresh, known);
  if (rest.length === known.length) return [];
  const last = fresh.at(-1).updated_at;
  return rest.filter((session) => session.updated_at <= last);
}
