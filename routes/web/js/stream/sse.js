/**
 * An incremental parser of text/event-stream, as specified by the HTML standard.
 *
 * The text may be split anywhere, even between CR and LF. An event cut off by the end of the stream is dropped, as the
 * standard requires; a resumed stream sends it again.
 */
export class SseParser {
  #rest = "";
  #scanned = 0;
  #data = [];
  #lastId = "";
  #first = true;

  /** @returns {{id: string, data: string}[]} the events completed by `text`, in order */
  feed(text) {
    const events = [];
    this.#rest += this.#first ? text.replace(/^\uFEFF/, "") : text;
    if (text) this.#first = false;
    for (let line = this.#takeLine(); line !== null; line = this.#takeLine()) this.#line(line, events);
    return events;
  }

  #takeLine() {
    const rest = this.#rest;
    for (let at = this.#scanned; at < rest.length; at++) {
      const code = rest.charCodeAt(at);
      if (code !== 10 && code !== 13) continue;
      // A trailing CR may be the first half of CRLF: wait for the next piece.
      if (code === 13 && at + 1 === rest.length) return this.#wait(at);
      const end = code === 13 && rest.charCodeAt(at + 1) === 10 ? at + 2 : at + 1;
      this.#rest = rest.slice(end);
      this.#scanned = 0;
      return rest.slice(0, at);
    }
    return this.#wait(rest.length);
  }

  #wait(scanned) {
    this.#scanned = scanned;
    return null;
  }

  #line(line, events) {
    if (line === "") return this.#dispatch(events);
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the server's ping
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#lastId = value;
  }

  #dispatch(events) {
    if (this.#data.length) events.push({ id: this.#lastId, data: this.#data.join("\n") });
    this.#data = [];
  }
}
