/** A turn under way: its stream drives its view, until DONE, a refusal, a lost connection or a stop. */

import { ApiError, readTurn, stopTurn } from "./api.js";
import { ConnectionLost, TurnStream } from "./stream.js";

const STOP_PATIENCE_MS = 3000;
// What old clients are shown as progress under PROGRESS_PREFIX=CONTENT; it is no part of the answer.
const PROGRESS_LINE = "正在进行混合检索...";

export class Run {
  #status = null;
  #reason = null;
  #fault = null;
  #errorText = null;
  #text = [];

  /** `body` is the request, or null to attach to a turn that runs already. */
  constructor(view, body, { sessionId = null, onSession = () => {} } = {}) {
    Object.assign(this, { view, body, sessionId, onSession, stopped: false });
    this.stream = new TurnStream(view.turnId, body, {
      onEvent: (event) => this.#take(event),
      onReconnect: (n, of) => view.setStage("reconnecting", { n, of }),
    });
  }

  /** Resolves when the turn is over, however it ended. `onRetry` runs it again under the same id. */
  async go(onRetry) {
    this.view.start();
    try {
      await this.stream.run();
      await this.#finish(onRetry);
    } catch (error) {
      this.#fail(error, onRetry);
    }
  }

  async stop() {
    if (this.stopped) return;
    this.stopped = true;
    this.view.setStage("stopping");
    setTimeout(() => this.stream.abort(), STOP_PATIENCE_MS);
    await stopTurn(this.view.turnId).catch(() => this.stream.abort());
  }

  #take({ type, text, value }) {
    if (type === "SESSION") this.onSession((this.sessionId = text));
    else if (type === "STATUS") this.#progress(value ?? {});
    else if (type === "THINK") this.view.appendThinking(text);
    else if (type === "CONTENT") this.#content(text);
    else if (type === "SOURCE") this.view.setSources(Array.isArray(value) ? value : []);
    else if (type === "ERROR") this.#errorText = text;
  }

  #progress(value) {
    if (value.stage === "finished") [this.#status, this.#reason] = [value.status, value.finish_reason];
    else if (value.stage === "error") this.#fault = value;
    else if (!this.stopped) this.view.setServerStage(value.stage, value.message);
  }

  #content(text) {
    if (!this.#text.length && text.trim() === PROGRESS_LINE) return;
    this.#text.push(text);
    this.view.appendAnswer(text);
  }

  async #finish(onRetry) {
    const status = this.#status ?? (this.#errorText === null ? "completed" : "failed");
    if (this.stream.reconnected) await this.#compareWithStored();
    this.view.finish(status, this.#reason);
    if (this.#errorText === null) return;
    const { request_id: requestId, retryable } = this.#fault ?? {};
    this.view.showError(this.#errorText || "failedUnknown", requestId, retryable === false ? null : onRetry);
  }

  /** A replay from the store may be cut otherwise than the live stream was: the stored text is right. */
  async #compareWithStored() {
    const turn = await readTurn(this.view.turnId).catch(() => null);
    if (turn && turn.assistant_response !== this.#text.join("")) this.view.showStored(turn);
  }

  #fail(error, onRetry) {
    this.view.finish(this.stopped ? "cancelled" : "failed");
    if (this.stopped) return;
    if (error instanceof ApiError) {
      this.view.showError(error.message, error.requestId, error.retryable ? onRetry : null);
    } else if (error instanceof ConnectionLost) {
      this.view.showError(this.#text.length ? "lostConnection" : "unreachable", "", onRetry);
    } else {
      this.view.showError("failedUnknown", "", onRetry);
      console.error(error);
    }
  }
}
