/** Which model answers, whether it thinks first, and what it may call: the conversation's own choices, kept by the
 * server. Whether passages are judged one by one is stored on this device. */

import { changeSession } from "../api/sessions.js";
import { el } from "../base/dom.js";
import { readPref, writePref } from "../base/prefs.js";

export class Options {
  #models = [];
  #default = "default";
  #canJudge = null;
  #tools = [];
  #id = null; // the conversation; null for one that has not begun
  #choices = {}; // its own
  #last = {}; // what a new one begins with
  #own = {}; // what was chosen in one that has not begun
  #changes = 0;
  #sending = 0;

  /** `row` holds the switches; `search` is {topN}; `say(key)` tells what a switch costs when it is put on, or that a
   * choice was not kept; `keep(choices)` keeps those of a conversation that has not begun,
   * `onModel()` hears of another model. */
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

  /** The request's fields that are not as the server has them anyway: what was chosen may be on its way there. */
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

  /** Whether a model that can judge is configured; undefined where the server does not say. */
  set canJudge(can) {
    this.#canJudge = can ?? null;
    this.#draw();
  }

  /** What models may call on this server; none: there is nothing to switch on. */
  set tools(names) {
    this.#tools = (names ?? []).filter((name) => name !== SEARCH); // the page searches for every question
    this.#draw();
  }

  /** What a new conversation begins with, as the server says. */
  set last(choices) {
    this.#last = choices;
    if (!this.#id) this.#is({ ...choices, ...this.#own });
  }

  /** Another conversation is open; `chosen` is what was chosen in one that has not begun. */
  show(id, chosen = {}) {
    [this.#id, this.#own] = [id, id ? {} : chosen];
    this.#is(id ? {} : { ...this.#last, ...chosen });
  }

  /** Gives what takes the conversation once it is read, unless a choice was made meanwhile, or is on its way. */
  reading() {
    const [id, changes, sending] = [this.#id, this.#changes, this.#sending];
    return (session) => id === this.#id && changes === this.#changes && !sending && this.#is(choicesOf(session));
  }

  /** The conversation that had not begun has this id now, and keeps its choices: the server puts none into it. */
  begun(id) {
    this.#id = id;
    this.#own = {};
    if (Object.keys(this.#choices).length) this.#send(this.#choices);
  }

  /** With one model there is nothing to choose, and the box stays away. */
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

  /** Whether the chosen model sees images. */
  get vision() {
    return this.#models.find(({ id }) => id === this.#modelId)?.vision === true;
  }

  get #generative() {
    return this.#models.find(({ id }) => id === this.#modelId)?.generative !== false;
  }

  /** Those of the conversation's tools that there are. */
  get #callable() {
    return this.#choices.tools ?? [];
  }

  /** A model that quotes rather than writes cannot judge: another does, then. */
  get #judge() {
    const other = this.#generative ? null : this.#models.find(({ generative }) => generative);
    return { use_insert_block: true, ...(other ? { insert_block_llm_id: other.id } : {}) };
  }

  #choose(choice) {
    this.#changes += 1;
    this.#is({ ...this.#choices, ...choice });
    this.#last = { ...this.#last, ...choice };
    if (this.#id) return this.#send(choice);
    this.#own = { ...this.#own, ...choice };
    this.keep(this.#own);
  }

  /** A choice that is not kept holds for the questions that are asked here, which say it themselves. */
  #send(choices) {
    this.#sending += 1;
    changeSession(this.#id, choices).catch(() => this.say("choiceNotKept")).finally(() => (this.#sending -= 1));
  }

  #is(choices) {
    this.#choices = choices;
    this.#draw();
  }

  /** A model that quotes rather than writes has nothing to think about. */
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

/** A button that is on or off, as it was the last time. */
function bind(button, pref, onChange) {
  press(button, readPref(pref) === "true");
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    press(button, on);
    writePref(pref, String(on));
    onChange(on);
  });
}
