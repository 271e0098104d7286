/** A running turn: its stream drives its view until DONE, a refusal, a lost connection or a stop. */

import { ApiError } from "../api/http.js";
import { readTurn, stopTurn } from "../api/turns.js";
import { noteOf } from "../turn/states.js";
import { ConnectionLost, TurnStream } from "./connections.js";

const STOP_TIMEOUT_MS = 3000;
// Shown to old clients as progress under PROGRESS_PREFIX=CONTENT; not part of the answer.
const PROGRESS_LINE = "正在进行混合检索...";

export class Run {
  #finished = null;
  #stopReceived = false; // whether the server received the stop
  #fault = null;
  #errorText = null;
  #text = [];

  /** `body` is the request or a promise of it, or null to attach to a turn that is already running. */
  constructor(view, body, { sessionId = null, onSession = () => {} } = {}) {
    Object.assign(this, { view, body, sessionId, onSession, stopped: false });
    this.stream = new TurnStream(view.turnId, body, {
      onEvent: (event) => this.#take(event),
      onReconnect: (n, of) => this.stopped || view.reconnecting(n, of),
      onConnected: () => this.stopped || view.reconnected(),
    });
  }

  /** The id of the parent turn, null for none; undefined until the server reports it. */
  get parent() {
    return this.#finished?.parent_turn_id;
  }

  /** Resolves when the turn has ended, however it did. `onRetry` runs it again under the same id. */
  async go(onRetry) {
    this.view.start();
    try {
      await this.stream.run();
      await this.#finish(onRetry);
    } catch (error) {
      await this.#fail(error, onRetry);
    }
  }

  /** If the server cannot be reached, the user is told; the turn then ends there once nobody reads it. */
  async stop() {
    if (this.stopped) return;
    this.stopped = true;
    this.view.stopping();
    setTimeout(() => this.stream.abort(), STOP_TIMEOUT_MS);
    try {
      await stopTurn(this.view.turnId);
      this.#stopReceived = true;
    } catch (error) {
      this.#stopReceived = error instanceof ApiError && error.status < 500; // 5xx: a proxy answers for an unreachable server
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

  /** Shows the note for an end that no ERROR event explained, as for a stored turn. */
  #note(status, onRetry) {
    const message = noteOf(status, !this.view.answer.empty);
    if (message && !this.stopped) this.view.showError({ message, onRetry });
  }

  /**
   * Whether the stored text should replace what arrived. A replay may be cut differently than the live stream, so the
   * stored text of a completed turn is right; but after a crash, more may have arrived than was stored.
   */
  #isBetter({ status, answer: stored }) {
    const arrived = this.#text.join("");
    if (status === "running" || stored === arrived) return false;
    return status === "completed" || (stored ?? "").length > arrived.length;
  }

  async #fail(error, onRetry) {
    await this.view.finish({ status: this.stopped ? "cancelled" : "failed" });
    if (this.stopped) return this.#stopReceived || this.view.showError({ message: "note_stop_unreached" });
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

/** The running turns of all sessions, so that one left in the background is not read twice. */
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

  /** The run that began last in that session. */
  newestOf(sessionId) {
    return [...this.#byTurn.values()].findLast((run) => run.sessionId === sessionId);
  }

  /** The runs of one branch, in the order in which they began. */
  on(thread) {
    return [...this.#byTurn.values()].filter((run) => run.thread === thread);
  }
}
