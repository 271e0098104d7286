/** A turn's stream from the question to DONE, over as many connections as it takes. */

import { ApiError } from "../api/http.js";
import { askQuestion, resumeTurn } from "../api/turns.js";
import { nextTask } from "../base/frames.js";
import { onReturn, timeouts, waitBefore } from "./timeouts.js";
import { readEvent } from "./protocol.js";
import { SseParser } from "./sse.js";

const PASSING = [408, 425, 429, 500, 502, 503, 504];

export class ConnectionLost extends Error {}

export class TurnStream {
  #abort = new AbortController();
  #last = 0;
  #done = false;

  /**
   * `body` is the request or a promise of it, or null to attach to an existing turn.
   * `onEvent` gets every event once and in order; `onReconnect` gets (attempt, of), `onConnected` nothing.
   */
  constructor(turnId, body, { onEvent, onReconnect, onConnected = () => {} }) {
    Object.assign(this, { turnId, body, onEvent, onReconnect, onConnected, reconnected: false });
  }

  abort() {
    this.#abort.abort();
  }

  /** Resolves after DONE. Throws ApiError (refused), ConnectionLost, or AbortError. */
  async run() {
    for (let attempt = 0; !this.#done; ) {
      const before = this.#last;
      await this.#connect().catch((error) => this.#mustBePassing(error));
      if (this.#done) return;
      attempt = this.#last > before ? 1 : attempt + 1;
      await this.#wait(attempt);
    }
  }

  async #wait(attempt) {
    const most = this.#last ? timeouts.attemptsToResume : timeouts.attemptsToBegin;
    if (attempt > most) throw new ConnectionLost();
    this.reconnected = true;
    this.onReconnect(attempt, most);
    await waitBefore(attempt, this.#abort.signal);
    this.#abort.signal.throwIfAborted();
  }

  async #connect() {
    const connection = new Connection(this.#abort.signal);
    connection.watch();
    try {
      const response = await this.#open(connection.signal);
      if (response.status === 204) this.#done = true; // the turn has ended and there are no more events
      else await connection.read(response, this.#reader());
    } finally {
      connection.close();
    }
  }

  async #open(signal) {
    // Nothing received yet: send the question itself again; its turn_id keeps it from running twice.
    if (this.body && this.#last === 0) return askQuestion(await this.body, signal);
    return resumeTurn(this.turnId, this.#last, signal);
  }

  /** A new parser for each connection, since the event that was cut off is sent again. */
  #reader() {
    const parser = new SseParser();
    return (text) => {
      if (this.reconnected) this.onConnected();
      for (const frame of parser.feed(text)) this.#take(readEvent(frame));
      return !this.#done;
    };
  }

  #take(event) {
    if (!event || this.#done || (event.n && event.n <= this.#last)) return;
    this.#last = Math.max(this.#last, event.n);
    this.#done = event.type === "DONE";
    this.onEvent(event);
  }

  /** Rethrows permanent errors; once the turn has begun, a restarting or busy server is retried. */
  #mustBePassing(error) {
    if (this.#abort.signal.aborted) throw error;
    const refused = error instanceof ApiError && !(this.#last > 0 && PASSING.includes(error.status));
    if (refused) throw error;
  }
}

/* One connection of a stream: aborted by the caller, or when the server has been silent for too long. */

const CHECKS = 9; // per silence limit
// Megabytes that arrive at once would otherwise block the page while they are processed.
const READ_BYTES = 65_536;
const READ_MS = 10;

class Connection {
  #abort = new AbortController();
  signal = this.#abort.signal;
  #lastByteAt = Date.now(); // a clock that keeps running while the machine sleeps
  #timer = 0;
  #unwatch = () => {};

  /** `outer`: another signal that aborts it. */
  constructor(outer) {
    if (outer.aborted) this.#abort.abort();
    outer.addEventListener("abort", () => this.#abort.abort(), { signal: this.signal });
  }

  /** Calls `onPiece(text)` for each piece until it returns false or the body ends. Throws if the connection breaks. */
  async read(response, onPiece) {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let begun = performance.now();
    for await (const bytes of this.#pieces(reader)) {
      if (onPiece(decoder.decode(bytes, { stream: true })) === false) break;
      if (performance.now() - begun < READ_MS) continue;
      await nextTask();
      begun = performance.now();
    }
    reader.cancel().catch(() => {}); // the server may already have closed it
  }

  async *#pieces(reader) {
    for (;;) {
      const { done, value } = await reader.read();
      this.#lastByteAt = Date.now();
      if (done) return;
      for (let at = 0; at < value.length; at += READ_BYTES) yield value.subarray(at, at + READ_BYTES);
    }
  }

  /** Starts watching for silence. */
  watch() {
    this.#lastByteAt = Date.now();
    this.#timer = setInterval(() => this.#check(timeouts.silentMs), timeouts.silentMs / CHECKS);
    this.#unwatch = onReturn(() => this.#check(timeouts.silentOnReturnMs));
  }

  close() {
    clearInterval(this.#timer);
    this.#unwatch();
  }

  #check(limitMs) {
    if (Date.now() - this.#lastByteAt > limitMs) this.#abort.abort();
  }
}
