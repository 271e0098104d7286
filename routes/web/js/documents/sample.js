/** A note about the bundled guide while its documents are listed, with a button that removes all of it. */

import { removeSample } from "../api/documents.js";
import { publish } from "../base/bus.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el } from "../base/dom.js";
import { reasonOfRequest } from "../uploads/reasons.js";

export class SampleNote {
  #ids = [];

  /** `onRemoved({isDeleted, sentences})`: the [key, vars] of the sentences to show in sequence. */
  constructor(onRemoved) {
    const button = el("button", { class: "text-button", type: "button", "data-action": "remove-sample", i18n: "docRemoveSample",
      on: { click: () => this.#remove(onRemoved) } });
    this.element = el("div", { class: "sample-note", hidden: true }, el("span", { i18n: "docSample" }), button);
  }

  /** `ids`: the guide's listed documents that this user may delete. */
  show(ids) {
    this.#ids = ids;
    this.element.hidden = ids.length === 0;
  }

  async #remove(onRemoved) {
    if (!(await confirmRemoval("removeSample"))) return;
    const ids = this.#ids;
    try {
      const { documents, chunks, left } = await removeSample();
      for (const id of ids) publish("document-deleted", { document_id: id });
      const proof = left ? ["docProofLeft", { n: left }] : ["docProofPartial"];
      onRemoved({ isDeleted: true, sentences: [["docSampleRemoved", { n: documents, chunks }], proof] });
    } catch (error) {
      onRemoved({ isDeleted: false, sentences: [["docSampleNotRemoved"], [reasonOfRequest(error)]] });
    }
  }
}
