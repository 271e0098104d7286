/** Which model answers, whether it thinks first, and whether passages are judged one by one; stored on this device. */

import { el } from "../base/dom.js";
import { readPref, writePref } from "../base/prefs.js";

export class Options {
  #models = [];
  #isKnown = false; // what there is to choose from
  #default = "default";
  #canJudge = null;
  #tools = [];

  /** `row` holds the switches; `search` is {topN}; `say(key)` tells what a switch costs when it is put on. */
  constructor(row, { search, filters, say }) {
    Object.assign(this, { search, filters });
    this.select = row.querySelector("#model");
    this.thinking = row.querySelector("#thinking");
    this.judging = el("button", { class: "switch", id: "insert-block", type: "button", hidden: true, label: "insertBlockLabel" },
      el("span", { i18n: "insertBlock" }));
    this.calling = el("button", { class: "switch", id: "tools", type: "button", hidden: true, label: "toolsLabel" },
      el("span", { i18n: "tools" }));
    this.thinking.after(this.judging, this.calling);
    bind(this.calling, "tools");
    bind(this.thinking, "thinking");
    bind(this.judging, "insert_block", (on) => say(on ? "insertBlockCost" : ""));
    this.select.addEventListener("change", () => this.#choose());
  }

  /** The request's fields that are not as the server has them anyway. */
  get chosen() {
    const filters = this.filters.request;
    return {
      ...(isOn(this.thinking) ? { thinking: true } : {}),
      ...(this.#modelId === this.#default ? {} : { model_id: this.#modelId }),
      ...(this.search.topN ? { rerank_top_n: this.search.topN } : {}),
      ...(isOn(this.judging) ? this.#judge : {}),
      ...(isOn(this.calling) ? { tools: this.#tools } : {}),
      ...(filters ? { filters } : {}),
    };
  }

  /** Whether a model that can judge is configured; undefined where the server does not say. */
  set canJudge(can) {
    this.#canJudge = can ?? null;
    this.#offer();
  }

  /** What models may call on this server; none: there is nothing to switch on. */
  set tools(names) {
    this.#tools = names ?? [];
    this.#offer();
  }

  /** With one model there is nothing to choose, and the box stays away. */
  async load(listModels) {
    const { models = [], default: first = "default" } = (await listModels().catch(() => null)) ?? {};
    this.#isKnown = true;
    this.select.replaceChildren(...models.map(({ id, label }) => el("option", { value: id, text: label || id })));
    const stored = readPref("model");
    this.select.value = models.some(({ id }) => id === stored) ? stored : first;
    this.select.hidden = models.length < 2;
    [this.#models, this.#default] = [models, first];
    this.#offer();
  }

  /** What was chosen the last time holds until the models are listed. */
  get #modelId() {
    return this.select.value || (!this.#isKnown && readPref("model")) || this.#default;
  }

  get #generative() {
    return this.#models.find(({ id }) => id === this.#modelId)?.generative !== false;
  }

  /** A model that quotes rather than writes cannot judge: another does, then. */
  get #judge() {
    const other = this.#generative ? null : this.#models.find(({ generative }) => generative);
    return { use_insert_block: true, ...(other ? { insert_block_llm_id: other.id } : {}) };
  }

  /** A model that quotes rather than writes has nothing to think about. */
  #offer() {
    this.thinking.hidden = !this.#generative;
    this.calling.hidden = !this.#tools.length || !this.#generative;
    this.judging.hidden = !(this.#canJudge || this.#models.some(({ generative }) => generative));
  }

  #choose() {
    writePref("model", this.select.value);
    this.#offer();
  }
}

const isOn = (button) => button.getAttribute("aria-pressed") === "true" && !button.hidden;

/** A button that is on or off, as it was the last time. */
function bind(button, pref, onChange = () => {}) {
  const set = (on) => button.setAttribute("aria-pressed", String(on));
  set(readPref(pref) === "true");
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    set(on);
    writePref(pref, String(on));
    onChange(on);
  });
}
