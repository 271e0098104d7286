/** One turn's stream, from the question to DONE, over as many connections as it takes. */

import { ApiError, askQuestion, resumeTurn } from "./api.js";
import { readEvent } from "./protocol.js";
import { SseParser } from "./sse.js";

const MAX_RECONNECTS = 5;
const FIRST_DELAY_MS = 500;

export class ConnectionLost extends Error {}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class TurnStream {
  #abort = new AbortController();
  #last = 0;
  #done = false;

  /**
   * `body` is the request, or null to attach to a turn that is already there.
   * `onEvent` gets every event once and in order; `onReconnect` gets (attempt, of).
   */
  constructor(turnId, body, { onEvent, onReconnect }) {
    Object.assign(this, { turnId, body, onEvent, onReconnect, reconnected: false });
  }

  abort() {
    this.#abort.abort();
  }

  /** Resolves after DONE. Raises ApiError (refused), ConnectionLost, or AbortError. */
  async run() {
    for (let attempt = 0; !this.#done; ) {
      const before = this.#last;
      await this.#connect().catch((error) => this.#mustBePassing(error));
      if (this.#done) return;
      attempt = this.#last > before ? 1 : attempt + 1;
      if (attempt > MAX_RECONNECTS) throw new ConnectionLost();
      this.reconnected = true;
      this.onReconnect(attempt, MAX_RECONNECTS);
      await sleep(FIRST_DELAY_MS * 2 ** (attempt - 1));
      this.#abort.signal.throwIfAborted();
    }
  }

  async #connect() {
    // Nothing received yet: the question itself is sent again, and its turn_id keeps it from running twice.
    const asking = this.body && this.#last === 0;
    const signal = this.#abort.signal;
    const response = await (asking ? askQuestion(this.body, signal) : resumeTurn(this.turnId, this.#last, signal));
    await this.#read(response.body.getReader());
  }

  async #read(reader) {
    const decoder = new TextDecoder();
    const parser = new SseParser();
    while (!this.#done) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const frame of parser.feed(decoder.decode(value, { stream: true }))) this.#take(readEvent(frame));
    }
    reader.cancel().catch(() => {}); // the server may already have closed it
  }

  #take(event) {
    if (!event || this.#done || (event.n && event.n <= this.#last)) return;
    this.#last = Math.max(this.#last, event.n);
    this.#done = event.type === "DONE";
    this.onEvent(event);
  }

  #mustBePassing(error) {
    if (this.#abort.signal.aborted) throw error;
    const refused = error instanceof ApiError && !(this.#last > 0 && [429, 502, 503, 504].includes(error.status));
    if (refused) throw error;
  }
}
