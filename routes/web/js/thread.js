/** One branch of a session, as the page shows it: which session, and where its next question grows. */

export class Thread {
  loading = false;
  /** The turn that the next question follows; null for a new root, undefined where the server decides. */
  #parent;

  /** `sessionId` is null while the session has not begun. */
  constructor(sessionId = null) {
    this.sessionId = sessionId;
  }

  /** The branch that ends in `leaf` is to be shown, and gone on with; without it, the newest. */
  show(leaf) {
    this.leaf = leaf;
    if (leaf) this.#parent = leaf;
  }

  /** What a question asked here says of its place. */
  get place() {
    return {
      ...(this.sessionId ? { session_id: this.sessionId } : {}),
      ...(this.branched ? { parent_turn_id: this.#parent } : {}),
    };
  }

  get branched() {
    return this.#parent !== undefined;
  }

  /** Its stored turns are known; `others` says whether the session has more branches than this. */
  loaded(turns, others) {
    if (others || this.branched) this.#parent = turns.findLast((turn) => !turn.command)?.turn_id ?? null;
  }

  /** A turn asked here ended. As on the server, only completed ones are followed, and after /clear none is. */
  ended({ turnId, command, status }) {
    if (!this.branched || status !== "completed") return;
    if (command === "clear") this.#parent = null;
    else if (!command) this.#parent = turnId;
  }
}
