/** The context of a passage in its document, shown inside the card: its neighbours and its section. */

import { ApiError } from "../api/http.js";
import { readDocument, readSurroundings } from "../api/documents.js";
import { el } from "../base/dom.js";
import { causeOf } from "../base/i18n.js";
import { markedText } from "./passage.js";

const NEAR = 2; // initial neighbours on either side
const STEP = 4;
const MAX_NEIGHBOURS = 10; // the server's own limit

export class Context {
  #before = NEAR;
  #after = NEAR;
  #box = el("div", { class: "context", role: "region", label: "contextLabel", tabindex: "0" });
  #state = el("p", { class: "faint", role: "status" });
  #loaded = false;

  constructor(citation) {
    this.citation = citation;
    this.element = el("div", { class: "source-context" }, this.#state, this.#box);
  }

  /** Loads the context the first time; later only scrolls back to the passage. */
  async show() {
    if (!this.#loaded) return this.#load();
    this.#scrollTo(this.#here, 40);
  }

  async #load() {
    if (!this.#loaded) this.#say("contextLoading");
    try {
      const { document_id: documentId, chunk_id: chunkId } = this.citation;
      const surroundings = await readSurroundings(documentId, chunkId, this.#before, this.#after);
      this.#say(null);
      this.#draw(surroundings);
      this.#loaded = true;
    } catch (error) {
      this.#say(await whyNot(error, this.citation.document_id));
    }
  }

  #say(key) {
    this.#state.hidden = key === null;
    this.#state.replaceChildren(...(key ? [el("span", { i18n: key })] : []));
    this.#box.hidden = key !== null && !this.#loaded;
  }

  get #here() {
    return this.#box.querySelector(".here");
  }

  /** Keeps the passage in place on the screen when text is added above it. */
  #draw(surroundings) {
    const was = this.#loaded ? this.#offset(this.#here) : 40;
    const chunks = inOrder(surroundings);
    const at = chunks.findIndex((chunk) => chunk.chunk_id === surroundings.chunk_id);
    const more = this.#more(surroundings, at, chunks.length - 1 - at, chunks[0].position);
    this.#box.replaceChildren(...[more.earlier, ...this.#texts(chunks, surroundings), more.later].filter(Boolean));
    this.#scrollTo(this.#here, was);
  }

  #texts(chunks, here) {
    return chunks.flatMap((chunk, at) => {
      const own = chunk.chunk_id === here.chunk_id;
      const words = own ? markedText({ ...this.citation, text: chunk.text, passage_start: this.#start(chunk) }) : markedText(chunk);
      const heading = chunk.heading && chunk.heading !== chunks[at - 1]?.heading;
      return [heading && el("p", { class: "context-heading", text: chunk.heading }),
        el("div", { class: own ? "context-chunk here" : "context-chunk" }, ...words)];
    }).filter(Boolean);
  }

  /** The passage's offset, which is valid only in the text that was cited. */
  #start({ text }) {
    return text === this.citation.text ? this.citation.passage_start : null;
  }

  #more({ neighbours }, above, below, firstPosition) {
    const ask = (change) => async () => {
      change();
      await this.#load();
      this.#box.focus({ preventScroll: true });
    };
    const earlier = firstPosition > 0 && above < MAX_NEIGHBOURS;
    const later = neighbours.after.length >= this.#after && below < MAX_NEIGHBOURS;
    return {
      earlier: earlier && button("contextEarlier", ask(() => (this.#before = Math.min(MAX_NEIGHBOURS, above + STEP)))),
      later: later && button("contextLater", ask(() => (this.#after = Math.min(MAX_NEIGHBOURS, below + STEP)))),
    };
  }

  #offset(node) {
    return node ? node.getBoundingClientRect().top - this.#box.getBoundingClientRect().top : 0;
  }

  #scrollTo(node, offset) {
    this.#box.scrollTop += this.#offset(node) - offset;
  }
}

const button = (key, click) => el("button", { class: "text-button", type: "button", i18n: key, on: { click } });

/** Merges neighbours and section, which overlap, in document order and without duplicates. */
function inOrder({ neighbours, section, ...chunk }) {
  const all = [...neighbours.before, ...section, chunk, ...neighbours.after];
  const once = new Map(all.map((each) => [each.chunk_id, each]));
  return [...once.values()].sort((one, other) => one.position - other.position);
}

/** The text key for a failure. A chunk may be missing because of its document's deletion or of a newer version. */
async function whyNot(error, documentId) {
  if (!(error instanceof ApiError)) return "contextFailed";
  if (error.status !== 404) return causeOf(error);
  return readDocument(documentId).then(() => "contextChunkDeleted",
    (reason) => (reason instanceof ApiError && reason.status === 404 ? "contextDocumentDeleted" : "contextChunkDeleted"));
}
