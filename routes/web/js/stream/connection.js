/** One connection of a stream: aborted from outside, or when the server has been silent for too long. */

import { onReturn, patience } from "./patience.js";

const CHECKS = 9; // in one time of silence

export class Connection {
  #abort = new AbortController();
  #heardAt = Date.now(); // a clock that goes on while the machine sleeps
  #timer = 0;
  #unwatch = () => {};

  /** `outer` ends it, too. */
  constructor(outer) {
    this.signal = AbortSignal.any([outer, this.#abort.signal]);
  }

  /** Calls `onPiece(text)` for what arrives until it returns false, or the body ends. Raises when it breaks off. */
  async read(response, onPiece) {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      this.#heardAt = Date.now();
      if (done) return;
      if (onPiece(decoder.decode(value, { stream: true })) === false) break;
    }
    reader.cancel().catch(() => {}); // the server may already have closed it
  }

  /** Begins to watch for silence. */
  watch() {
    this.#heardAt = Date.now();
    this.#timer = setInterval(() => this.#check(patience.silentMs), patience.silentMs / CHECKS);
    this.#unwatch = onReturn(() => this.#check(patience.silentOnReturnMs));
  }

  close() {
    clearInterval(this.#timer);
    this.#unwatch();
  }

  #check(limitMs) {
    if (Date.now() - this.#heardAt > limitMs) this.#abort.abort();
  }
}
