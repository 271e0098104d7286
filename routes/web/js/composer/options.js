/** Which model answers, whether it thinks first, and which tools it may call: choices that the server stores with the
 * conversation. Whether passages are judged one by one is stored on this device. */

import { changeSession } from "../api/sessions.js";
import { el } from "../base/dom.js";
import { readPref, writePref } from "../base/prefs.js";

export class Options {
  #models = [];
  #default = "default";
  #canJudge = null;
  #tools = [];
  #id = null; // of the conversation; null for a new one
  #choices = {}; // of this conversation
  #last = {}; // the defaults of a new conversation
  #own = {}; // chosen in a new conversation
  #changes = 0;
  #sending = 0;

  /** `row` contains the switches; `search` is {topN}; `say(key)` shows what a switch costs, or that a choice was not
   * saved; `keep(choices)` stores those of a new conversation, `onModel()` is called when the model may have changed. */
  constructor(row, { search, filters, say, keep, onModel }) {
    Object.assign(this, { search, filters, say, keep, onModel });
    this.select = row.querySelector("#model");
    this.thinking = row.querySelector("#thinking");
    this.judging = el("button", { class: "switch", id: "insert-block", type: "button", hidden: true, label: "insertBlockLabel" },
      el("span", { i18n: "insertBlock" }));
    this.calling = el("button", { class: "switch", id: "tools", type: "button", hidden: true, label: "toolsLabel" },
      el("span", { i18n: "tools" }));
    this.thinking.after(this.judging, this.calling);
    this.calling.addEventListener("click", () => this.#choose({ tools: this.#callable.length ? [] : this.#tools }));
    this.thinking.addEventListener("click", () => this.#choose({ thinking: !this.#choices.thinking }));
    this.select.addEventListener("change", () => this.#choose({ model_id: this.select.value }));
    bind(this.judging, "insert_block", (on) => say(on ? "insertBlockCost" : ""));
  }

  /** The request's fields that differ from the server's defaults; includes the choices, whose saving may be in flight. */
  get chosen() {
    const filters = this.filters.request;
    return {
      ...this.#choices,
      ...("thinking" in this.#choices ? { thinking: isOn(this.thinking) } : {}),
      ...("model_id" in this.#choices ? { model_id: this.#modelId } : {}),
      ...(this.search.topN ? { rerank_top_n: this.search.topN } : {}),
      ...(isOn(this.judging) ? this.#judge : {}),
      ...("tools" in this.#choices ? { tools: isOn(this.calling) ? this.#callable : [] } : {}),
      ...(filters ? { filters } : {}),
    };
  }

  /** Whether a model that can judge is configured; undefined if the server does not say. */
  set canJudge(can) {
    this.#canJudge = can ?? null;
    this.#draw();
  }

  /** The tools that this server offers; without any, the switch is hidden. */
  set tools(names) {
    this.#tools = (names ?? []).filter((name) => name !== SEARCH); // the page searches for every question
    this.#draw();
  }

  /** The server's defaults for a new conversation. */
  set last(choices) {
    this.#last = choices;
    if (!this.#id) this.#apply({ ...choices, ...this.#own });
  }

  /** Shows another conversation; `chosen` are the choices made in a new one. */
  show(id, chosen = {}) {
    [this.#id, this.#own] = [id, id ? {} : chosen];
    this.#apply(id ? {} : { ...this.#last, ...chosen });
  }

  /** Returns a callback for the loaded conversation, which is ignored if a choice was made or is being saved meanwhile. */
  reading() {
    const [id, changes, sending] = [this.#id, this.#changes, this.#sending];
    return (session) => id === this.#id && changes === this.#changes && !sending && this.#apply(choicesOf(session));
  }

  /** The new conversation got this id: saves its choices, since the server stores none by itself. */
  begun(id) {
    this.#id = id;
    this.#own = {};
    if (Object.keys(this.#choices).length) this.#send(this.#choices);
  }

  /** Loads the models; with only one, the select is hidden. */
  async load(listModels) {
    const { models = [], default: first = "default" } = (await listModels().catch(() => null)) ?? {};
    this.select.replaceChildren(...models.map(({ id, label }) => el("option", { value: id, text: label || id })));
    this.select.hidden = models.length < 2;
    [this.#models, this.#default] = [models, first];
    this.#draw();
  }

  get #modelId() {
    const { model_id: id = this.#default } = this.#choices;
    return !this.#models.length || this.#models.some((model) => model.id === id) ? id : this.#default;
  }

  /** Why the chosen model gets no images, as a text key; "" if it sees them. */
  get blindness() {
    const seeing = this.#models.filter(({ vision }) => vision);
    if (this.#models.length && !seeing.length) return "imagesNoModel";
    return seeing.some(({ id }) => id === this.#modelId) ? "" : "imagesNoVision";
  }

  get #generative() {
    return this.#models.find(({ id }) => id === this.#modelId)?.generative !== false;
  }

  /** The tools switched on in this conversation. */
  get #callable() {
    return this.#choices.tools ?? [];
  }

  /** An extractive model cannot judge, so another one judges in its place. */
  get #judge() {
    const other = this.#generative ? null : this.#models.find(({ generative }) => generative);
    return { use_insert_block: true, ...(other ? { insert_block_llm_id: other.id } : {}) };
  }

  #choose(choice) {
    this.#changes += 1;
    this.#apply({ ...this.#choices, ...choice });
    this.#last = { ...this.#last, ...choice };
    if (this.#id) return this.#send(choice);
    this.#own = { ...this.#own, ...choice };
    this.keep(this.#own);
  }

  /** A choice that could not be saved still applies to questions asked here, which send it along. */
  #send(choices) {
    this.#sending += 1;
    changeSession(this.#id, choices).catch(() => this.say("choiceNotKept")).finally(() => (this.#sending -= 1));
  }

  #apply(choices) {
    this.#choices = choices;
    this.#draw();
  }

  /** Redraws the switches; an extractive model can neither think nor call tools. */
  #draw() {
    this.select.value = this.#modelId;
    press(this.thinking, this.#choices.thinking);
    press(this.calling, this.#callable.length > 0);
    this.thinking.hidden = !this.#generative;
    this.calling.hidden = !this.#tools.length || !this.#generative;
    this.judging.hidden = !(this.#canJudge || this.#models.some(({ generative }) => generative));
    this.onModel();
  }
}

const SEARCH = "search_knowledge";
const CHOICES = ["model_id", "temperature", "max_tokens", "thinking", "tools", "knowledge"];
const choicesOf = (session) => Object.fromEntries(CHOICES.filter((name) => session?.[name] != null).map((name) => [name, session[name]]));

const isOn = (button) => button.getAttribute("aria-pressed") === "true" && !button.hidden;
const press = (button, on) => button.setAttribute("aria-pressed", String(Boolean(on)));

/** Makes a toggle button that remembers its state in `pref`. */
function bind(button, pref, onChange) {
  press(button, readPref(pref) === "true");
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    press(button, on);
    writePref(pref, String(on));
    onChange(on);
  });
}
