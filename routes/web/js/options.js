/** Which model answers, and whether it thinks first; kept on this device. */

import { el } from "./dom.js";
import { readPref, writePref } from "./prefs.js";

export class Options {
  #models = [];

  constructor(select, toggle) {
    Object.assign(this, { select, toggle });
    this.#setThinking(readPref("thinking") === "true");
    toggle.addEventListener("click", () => this.#setThinking(toggle.getAttribute("aria-pressed") !== "true"));
    select.addEventListener("change", () => this.#choose());
  }

  get chosen() {
    const pressed = this.toggle.getAttribute("aria-pressed") === "true";
    return { thinking: pressed && !this.toggle.hidden, model_id: this.select.value || "default" };
  }

  /** With one model there is nothing to choose, and the box stays away. */
  async load(listModels) {
    const { models = [], default: first = "default" } = (await listModels().catch(() => null)) ?? {};
    this.select.replaceChildren(...models.map(({ id, label }) => el("option", { value: id, text: label || id })));
    const kept = readPref("model");
    this.select.value = models.some(({ id }) => id === kept) ? kept : first;
    this.select.hidden = models.length < 2;
    this.#models = models;
    this.#offerThinking();
  }

  /** A model that quotes rather than writes has nothing to think about. */
  #offerThinking() {
    this.toggle.hidden = this.#models.find(({ id }) => id === this.select.value)?.generative === false;
  }

  #choose() {
    writePref("model", this.select.value);
    this.#offerThinking();
  }

  #setThinking(on) {
    this.toggle.setAttribute("aria-pressed", String(on));
    writePref("thinking", String(on));
  }
}
