/** The conversation on the page: which session is open, its turns, and the turns under way. */

import { ApiError, listTurns } from "./api.js";
import { el } from "./dom.js";
import { nextFrame } from "./frames.js";
import { t } from "./i18n.js";
import { newTurnId } from "./protocol.js";
import { Run } from "./run.js";
import { TurnView } from "./turn-view.js";

const TURNS_PER_FRAME = 5;

export class Chat {
  /** Turns under way in any session, so that one left open in the background is not read twice. */
  #runs = new Map();
  #thread = { sessionId: null };

  /** `options()` gives {thinking, model_id}; `onChange` is called when anything here has changed. */
  constructor(element, follower, { options, onChange, onSessionStarted, onTurnEnded, announce }) {
    Object.assign(this, { element, follower, options, onChange, onSessionStarted, onTurnEnded, announce });
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

  /** Shows a stored session, or an empty new one for null. */
  async open(sessionId) {
    const running = [...this.#runs.values()].find((run) => sessionId && run.sessionId === sessionId);
    const thread = (this.#thread = running?.thread ?? { sessionId });
    thread.loading = sessionId !== null;
    this.element.replaceChildren();
    this.onChange();
    if (sessionId) await this.#load(thread);
    thread.loading = false;
    if (thread === this.#thread) this.onChange();
  }

  ask(question) {
    const turnId = newTurnId();
    const session = this.sessionId ? { session_id: this.sessionId } : {};
    const body = { question, ...session, turn_id: turnId, ...this.options(), stream_format: "prefix" };
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
    await run.go(() => this.#again(view, body, thread));
    this.#runs.delete(view.turnId);
    this.#ended(view, thread);
  }

  #again(view, body, thread) {
    if (thread !== this.#thread || this.running) return;
    view.reset();
    this.#run(view, body, thread);
  }

  #ended(view, thread) {
    this.onTurnEnded();
    if (thread !== this.#thread) return;
    this.follower.stop();
    this.onChange();
    if (view.element.dataset.status === "completed") this.announce(t("announceDone", { n: view.sourceCount }));
  }

  #named(thread, sessionId) {
    if (thread.sessionId === sessionId) return;
    thread.sessionId = sessionId;
    if (thread === this.#thread) this.onSessionStarted(sessionId);
  }

  async #load(thread) {
    try {
      const turns = await listTurns(thread.sessionId);
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

  #showStored(turn, thread) {
    const run = this.#runs.get(turn.turn_id);
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
