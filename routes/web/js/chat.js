/** The conversation on the page: which session is open, its turns, and the turns under way. */

import { ApiError, listTurns, readTree } from "./api.js";
import { BranchLine } from "./branch-line.js";
import { branchesAside } from "./branches.js";
import { el } from "./dom.js";
import { nextFrame } from "./frames.js";
import { t } from "./i18n.js";
import { newTurnId } from "./protocol.js";
import { Run } from "./run.js";
import { Thread } from "./thread.js";
import { TurnView } from "./turn-view.js";

const TURNS_PER_FRAME = 5;

export class Chat {
  /** Turns under way in any session, so that one left open in the background is not read twice. */
  #runs = new Map();
  #thread = new Thread();

  /** `options()` gives {thinking, model_id}; `onChange` is called when anything here has changed. */
  constructor(element, follower, { options, onChange, onSessionStarted, onTurnEnded, announce, branchLine }) {
    Object.assign(this, { element, follower, options, onChange, onSessionStarted, onTurnEnded, announce });
    this.line = new BranchLine(branchLine, (leaf) => this.open(this.sessionId, leaf));
  }

  get sessionId() {
    return this.#thread.sessionId;
  }

  get empty() {
    return !this.element.childElementCount && !this.#thread.loading;
  }

  get running() {
    return [...this.#runs.values()].find((run) => run.thread === this.#thread) ?? null;
  }

  /** Shows a stored session, or an empty new one for null: the branch that ends in `leaf`, or the newest. */
  async open(sessionId, leaf) {
    if (sessionId !== this.sessionId) this.line.clear();
    const running = [...this.#runs.values()].findLast((run) => sessionId && !leaf && run.sessionId === sessionId);
    const thread = (this.#thread = running?.thread ?? new Thread(sessionId));
    thread.show(leaf);
    thread.loading = sessionId !== null;
    this.element.replaceChildren();
    this.onChange();
    if (sessionId) await this.#load(thread);
    thread.loading = false;
    if (thread === this.#thread) this.onChange();
  }

  ask(question) {
    const turnId = newTurnId();
    const body = { question, ...this.#thread.place, turn_id: turnId, ...this.options(), stream_format: "prefix" };
    this.#append(new TurnView(turnId, question), body);
  }

  stop() {
    this.running?.stop();
  }

  #append(view, body) {
    this.element.append(view.element);
    this.#run(view, body, this.#thread);
  }

  async #run(view, body, thread) {
    const run = new Run(view, body, { sessionId: thread.sessionId, onSession: (id) => this.#named(thread, id) });
    run.thread = thread;
    this.#runs.set(view.turnId, run);
    this.onChange();
    this.follower.start();
    await run.go(() => this.#again(view, body, run.thread));
    this.#runs.delete(view.turnId);
    this.#ended(view, run.thread);
  }

  #again(view, body, thread) {
    if (thread !== this.#thread || this.running) return;
    view.reset();
    this.#run(view, body, thread);
  }

  #ended(view, thread) {
    this.onTurnEnded();
    thread.ended(view);
    if (thread !== this.#thread) return;
    this.follower.stop();
    this.onChange();
    if (thread.branched) this.#refreshLine(thread);
    if (view.status === "completed") this.announce(t("announceDone", { n: view.sourceCount }));
  }

  #named(thread, sessionId) {
    if (thread.sessionId === sessionId) return;
    thread.sessionId = sessionId;
    if (thread === this.#thread) this.onSessionStarted(sessionId);
  }

  async #load(thread) {
    try {
      const turns = await this.#read(thread);
      this.follower.start();
      for (const [at, turn] of turns.entries()) {
        if (thread !== this.#thread) return;
        this.#showStored(turn, thread);
        if (at % TURNS_PER_FRAME === TURNS_PER_FRAME - 1) await nextFrame();
      }
    } catch (error) {
      if (thread === this.#thread) this.#loadFailed(error);
    }
    if (!this.running) this.follower.stop();
  }

  /** The branch's turns; the line above them tells of the others, and stays away when the tree cannot be read. */
  async #read(thread) {
    const tree = readTree(thread.sessionId).catch(() => []);
    const [turns, nodes] = await Promise.all([listTurns(thread.sessionId, thread.leaf), tree]);
    const aside = branchesAside(nodes, new Set(turns.map((turn) => turn.turn_id)));
    thread.loaded(turns, aside.newest || aside.total > 0);
    if (thread === this.#thread) this.line.show(aside);
    return turns;
  }

  async #refreshLine(thread) {
    const nodes = await readTree(thread.sessionId).catch(() => null);
    const shown = new Set([...this.element.querySelectorAll(".turn")].map((turn) => turn.dataset.turn));
    if (nodes && thread === this.#thread && !thread.loading) this.line.show(branchesAside(nodes, shown));
  }

  #showStored(turn, thread) {
    const run = this.#runs.get(turn.turn_id);
    if (run) run.thread = thread;
    const view = run?.view ?? (turn.status === "running" ? new TurnView(turn.turn_id, turn.user_query) : null);
    this.element.append((view ?? this.#stored(turn)).element);
    if (view && !run) this.#run(view, null, thread);
  }

  /** A turn that did not get its answer can be asked again, as a new turn. */
  #stored(turn) {
    const view = TurnView.stored(turn);
    const failed = turn.status === "failed" || turn.status === "interrupted";
    if (failed) view.showError(`note_${turn.status}`, "", () => !this.running && this.ask(turn.user_query));
    return view;
  }

  #loadFailed(error) {
    const missing = error instanceof ApiError && error.status === 404;
    this.element.replaceChildren(el("p", { class: "notice", i18n: missing ? "sessionMissing" : "loadFailed" }));
  }
}
