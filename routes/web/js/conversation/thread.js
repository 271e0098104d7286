/** One branch of a session, as the page shows it: which session, and where its next question grows. */

import { leadsOn } from "../turn/states.js";

export class Thread {
  loading = null;
  /** Opens it again, where its turns could not be read. */
  retry = null;
  sought = null;
  /** The turn that the next question follows; null for a new root, undefined where the server decides. */
  #parent;
  /** What the question of `#parent` followed itself. */
  #before;

  /** `sessionId` is null while the session has not begun. */
  constructor(sessionId = null) {
    this.sessionId = sessionId;
  }

  /** A branch of its own, whose first question here follows `parent`. */
  static from(sessionId, parent) {
    const thread = new Thread(sessionId);
    thread.#parent = sessionId ? parent : undefined;
    return thread;
  }

  /** The branch that ends in `leaf` is to be shown, and gone on with; without it, the newest. */
  show(leaf) {
    this.leaf = leaf;
    this.sought = null;
    if (leaf) this.#parent = leaf;
  }

  /** The branch through that turn is to be shown. Where it ends is found when its turns are read. */
  seek(turnId) {
    this.leaf = this.sought = turnId;
  }

  /** What a question asked here says of its place. */
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
   * Its stored turns are known; `others` says whether the session has more branches than this. By itself the server
   * follows the newest completed turn, so what else is followed here is told to it.
   */
  loaded(turns, others) {
    const last = turns.findLast(leadsOn);
    if (!others && !this.branched && (!last || last.status === "completed")) return;
    this.#parent = last?.turn_id ?? null;
    this.#before = last?.parent_turn_id ?? null;
  }

  /** The last turn asked here ended. After /clear none is followed, as on the server. */
  ended({ turnId, command, status, leadsOn: followed }) {
    if (command === "clear" && status === "completed") {
      if (this.branched) this.#parent = null;
    } else if (followed) {
      if (this.branched || status !== "completed") this.#follow(turnId);
    } else if (turnId === this.#parent) this.#parent = this.#before; // asked again: nothing came of it
  }

  #follow(turnId) {
    if (turnId === this.#parent) return;
    this.#before = this.#parent;
    this.#parent = turnId;
  }
}
