/** One branch of a session, as shown on the page: the session, and the parent of its next question. */

import { canBeFollowed } from "../turn/states.js";

export class Thread {
  loading = null;
  /** Opens the branch again after its turns failed to load; null otherwise. */
  retry = null;
  sought = null;
  /** The turn that the next question follows; null for a new root, undefined to let the server decide. */
  #parent;
  /** The parent of `#parent`. */
  #before;

  /** `sessionId` is null for a session that has not begun. */
  constructor(sessionId = null) {
    this.sessionId = sessionId;
  }

  /** A new branch whose first question here follows `parent`. */
  static from(sessionId, parent) {
    const thread = new Thread(sessionId);
    thread.#parent = sessionId ? parent : undefined;
    return thread;
  }

  /** Selects the branch that ends in `leaf` (by default the newest) to be shown and continued. */
  show(leaf) {
    this.leaf = leaf;
    this.sought = null;
    if (leaf) this.#parent = leaf;
  }

  /** Selects the branch through that turn; its end is determined when its turns are loaded. */
  seek(turnId) {
    this.leaf = this.sought = turnId;
  }

  /** The request fields that place a question asked here. */
  get place() {
    return {
      ...(this.sessionId ? { session_id: this.sessionId, begin_session: false } : {}),
      ...(this.branched ? { parent_turn_id: this.#parent } : {}),
    };
  }

  get branched() {
    return this.#parent !== undefined;
  }

  get parent() {
    return this.#parent;
  }

  /**
   * Called when the stored turns are loaded; `others` says whether the session has other branches. By default the
   * server follows the newest completed turn, so a question that follows any other turn must name it.
   */
  loaded(turns, others) {
    const last = turns.findLast(canBeFollowed);
    if (!others && !this.branched && (!last || last.status === "completed")) return;
    this.#parent = last?.turn_id ?? null;
    this.#before = last?.parent_turn_id ?? null;
  }

  /** Called when the last turn asked here ended. After /clear the next question follows none, as on the server. */
  ended({ turnId, command, status, canBeFollowed: followed }) {
    if (command === "clear" && status === "completed") {
      if (this.branched) this.#parent = null;
    } else if (followed) {
      if (this.branched || status !== "completed") this.#follow(turnId);
    } else if (turnId === this.#parent) this.#parent = this.#before; // a retry without an answer
  }

  #follow(turnId) {
    if (turnId === this.#parent) return;
    this.#before = this.#parent;
    this.#parent = turnId;
  }
}
