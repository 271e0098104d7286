/** A turn under way: its stream drives its view, until DONE, a refusal, a lost connection or a stop. */

import { ApiError } from "../api/http.js";
import { readTurn, stopTurn } from "../api/turns.js";
import { noteOf } from "../turn/states.js";
import { ConnectionLost, TurnStream } from "./connections.js";

const STOP_PATIENCE_MS = 3000;
// What old clients are shown as progress under PROGRESS_PREFIX=CONTENT; it is no part of the answer.
const PROGRESS_LINE = "正在进行混合检索...";

export class Run {
  #finished = null;
  #stopHeard = false; // by the server
  #fault = null;
  #errorText = null;
  #text = [];

  /** `body` is the request, perhaps yet to come, or null to attach to a turn that runs already. */
  constructor(view, body, { sessionId = null, onSession = () => {} } = {}) {
    Object.assign(this, { view, body, sessionId, onSession, stopped: false });
    this.stream = new TurnStream(view.turnId, body, {
      onEvent: (event) => this.#take(event),
      onReconnect: (n, of) => this.stopped || view.reconnecting(n, of),
      onConnected: () => this.stopped || view.reconnected(),
    });
  }

  /** The turn that it followed, null for none; undefined while the server has not told. */
  get parent() {
    return this.#finished?.parent_turn_id;
  }

  /** Resolves when the turn is over, however it ended. `onRetry` runs it again under the same id. */
  async go(onRetry) {
    this.view.start();
    try {
      await this.stream.run();
      await this.#finish(onRetry);
    } catch (error) {
      await this.#fail(error, onRetry);
    }
  }

  /** A server that cannot be told is left alone, and the reader is told so: the turn ends there when nobody reads it. */
  async stop() {
    if (this.stopped) return;
    this.stopped = true;
    this.view.stopping();
    setTimeout(() => this.stream.abort(), STOP_PATIENCE_MS);
    try {
      await stopTurn(this.view.turnId);
      this.#stopHeard = true;
    } catch (error) {
      this.#stopHeard = error instanceof ApiError && error.status < 500; // a proxy speaks for a server that is away
      this.stream.abort();
    }
  }

  #take({ type, text, value }) {
    if (type === "SESSION") this.onSession((this.sessionId = text));
    else if (type === "STATUS") this.#status(value ?? {});
    else if (type === "THINK") this.view.appendThinking(text);
    else if (type === "CONTENT") this.#content(text);
    else if (type === "SOURCE") this.view.setSources(Array.isArray(value) ? value : []);
    else if (type === "ERROR") this.#errorText = text;
  }

  #status(value) {
    if (value.stage === "finished") this.#finished = value;
    else if (value.stage === "error") this.#fault = value;
    else if (!this.stopped) this.view.stage(value);
  }

  #content(text) {
    if (!this.#text.length && text.trim() === PROGRESS_LINE) return;
    this.#text.push(text);
    this.view.appendAnswer(text);
  }

  async #finish(onRetry) {
    const live = this.#finished ?? { status: this.#errorText === null ? "completed" : "failed" };
    const stored = this.stream.reconnected ? await readTurn(this.view.turnId).catch(() => null) : null;
    if (stored && this.#isBetter(stored)) this.view.showStored(stored);
    const end = this.#finished || !stored ? live : stored;
    await this.view.finish(end);
    if (this.#errorText === null) return this.#note(end.status, onRetry);
    const { code, cause, request_id: requestId, retryable, retry_after_s: retryAfterS } = this.#fault ?? {};
    this.view.showError({ message: this.#errorText || "failedUnknown", code, cause, requestId, retryAfterS,
      broken: !this.view.answer.empty, onRetry: retryable === false ? null : onRetry });
  }

  /** The end that no ERROR event told of, as a stored turn says it. */
  #note(status, onRetry) {
    const message = noteOf(status, !this.view.answer.empty);
    if (message && !this.stopped) this.view.showError({ message, onRetry });
  }

  /**
   * A replay from the store may be cut otherwise than the live stream was: the stored text is right. Of a turn
   * that a crash ended, more may have arrived than was stored.
   */
  #isBetter({ status, answer: stored }) {
    const arrived = this.#text.join("");
    if (status === "running" || stored === arrived) return false;
    return status === "completed" || (stored ?? "").length > arrived.length;
  }

  async #fail(error, onRetry) {
    await this.view.finish({ status: this.stopped ? "cancelled" : "failed" });
    if (this.stopped) return this.#stopHeard || this.view.showError({ message: "note_stop_unreached" });
    if (error instanceof ApiError) {
      const { message, code, status, requestId, retryable, retryAfterS } = error;
      this.view.showError({ message, code: code || `http_${status}`, requestId, retryAfterS,
        onRetry: retryable || status === 401 || status >= 500 ? onRetry : null });
    } else if (error instanceof ConnectionLost) {
      this.view.showError({ code: this.#text.length ? "connection_lost" : "network", onRetry });
    } else {
      this.view.showError({ message: "failedUnknown", onRetry });
      console.error(error);
    }
  }
}

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
