/** Tells how uploads ended, for those who do not see it: one by one, or as a number when many end at once. */

import { t } from "../base/i18n.js";

const TOGETHER_MS = 700;

export class Endings {
  #ended = [];
  #timer = 0;

  constructor(say) {
    this.say = say;
  }

  add(upload, document) {
    this.#ended.push({ upload, document });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tell(), TOGETHER_MS);
  }

  #tell() {
    const ended = this.#ended.splice(0);
    if (ended.length === 1) return this.say(sentence(ended[0]));
    const done = ended.filter(({ upload }) => ["done", "same"].includes(upload.state)).length;
    const others = ended.length - done;
    this.say(t(others ? "docEndedTogether" : "docAllRead", { done, others }));
  }
}

function sentence({ upload, document }) {
  const { name, state, reason } = upload;
  if (state === "done") return t("docReadIn", { name, n: document.chunk_count });
  if (state === "same") return t("docSameNamed", { name });
  if (state === "cancelled") return t("docCancelledNamed", { name });
  return t("docFailedNamed", { name, why: t(...reason) });
}
