/** The turns under way, in any session: one left open in the background is not read twice. */

export class Runs {
  #byTurn = new Map();

  add(run) {
    this.#byTurn.set(run.view.turnId, run);
  }

  remove(run) {
    this.#byTurn.delete(run.view.turnId);
  }

  find(turnId) {
    return this.#byTurn.get(turnId);
  }

  /** The one that began last in that session. */
  newestOf(sessionId) {
    return [...this.#byTurn.values()].findLast((run) => run.sessionId === sessionId);
  }

  /** Those of one branch, in the order in which they began. */
  on(thread) {
    return [...this.#byTurn.values()].filter((run) => run.thread === thread);
  }
}
