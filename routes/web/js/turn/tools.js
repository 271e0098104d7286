/** A turn's tool calls: one card each, with collapsed arguments and result, and the buttons to approve or refuse. */

import { decideCall } from "../api/turns.js";
import { el, icon, setText } from "../base/dom.js";
import { seconds } from "../base/i18n.js";

export class ToolCards {
  #cards = new Map();

  constructor(turnId) {
    this.turnId = turnId;
    this.element = el("ul", { class: "tool-calls", hidden: true });
  }

  /** Handles a STATUS event of the stage `tool`. */
  show({ call_id: id, name, state, ms, arguments: sent, result }) {
    if (!this.#cards.has(id)) this.#add(id, name);
    this.#cards.get(id).show(state, ms, sent, result);
  }

  /** Whether a call is waiting for approval. */
  get isWaiting() {
    return [...this.#cards.values()].some(({ element }) => element.dataset.state === "waiting");
  }

  /** Shows the calls of a stored turn. */
  showStored(uses = []) {
    for (const use of uses) {
      const { name, arguments: sent } = use.function;
      this.show({ call_id: use.id, name, state: use.state, ms: use.ms, arguments: sent, result: use.result });
    }
  }

  /** The turn has ended: no call is waiting or running any more. */
  settle() {
    for (const card of this.#cards.values()) card.settle();
  }

  #add(id, name) {
    const card = new ToolCard(name, (approve) => decideCall(this.turnId, id, approve));
    this.#cards.set(id, card);
    this.element.append(card.element);
    this.element.hidden = false;
  }
}

const OPEN = new Set(["waiting", "running"]);

// Whoever approves must see exactly what is sent: these characters would hide part of it or reorder it.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = (text) => text.replace(HIDDEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

const ROUNDED = /\d{16}/; // JavaScript would round such a number

/** The arguments by name; the raw text if it is not an object or would not be displayed exactly. */
function argumentsOf(sent) {
  const values = ROUNDED.test(sent) ? null : parsed(sent);
  if (values?.constructor !== Object) return el("pre", { text: visible(sent) });
  return el("dl", {}, ...Object.entries(values).flatMap(([name, value]) => [
    el("dt", { text: visible(name) }),
    el("dd", {}, el("pre", { text: visible((typeof value === "string" && value) || JSON.stringify(value, null, 2)) })),
  ]));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

class ToolCard {
  #state = el("span", { class: "tool-state" });
  #took = el("span", { class: "tool-took" });
  #sent = el("div", { class: "tool-text" });
  #result = el("pre", { class: "tool-text" });
  #resultBox = el("div", { hidden: true }, el("h3", { i18n: "toolResult" }), this.#result);
  #asks = el("div", { class: "tool-asks", hidden: true, role: "group" });

  constructor(name, decide) {
    const answer = (approve) => async () => {
      this.#asks.hidden = true;
      if (!(await decide(approve))) this.#asks.hidden = false;
    };
    this.#asks.append(
      el("p", { i18n: "toolAsks" }),
      el("button", { type: "button", class: "button approve", i18n: "toolApprove", on: { click: answer(true) } }),
      el("button", { type: "button", class: "button refuse", i18n: "toolRefuse", on: { click: answer(false) } }));
    const summary = el("summary", {}, icon("chevron"), el("code", { text: name }), this.#state, this.#took);
    const folded = el("details", {}, summary, el("h3", { i18n: "toolSent" }), this.#sent, this.#resultBox);
    this.element = el("li", { class: "tool-call" }, folded, this.#asks);
  }

  show(state, ms, sent, result) {
    const folded = this.element.querySelector("details");
    // open while waiting for approval, so that the arguments are seen; collapsed once decided, as after a reload
    if (state === "waiting" || this.element.dataset.state === "waiting") folded.open = state === "waiting";
    this.element.dataset.state = state;
    setText(this.#state, `tool_${state}`);
    this.#took.textContent = "";
    if (!OPEN.has(state) && ms) setText(this.#took, "secondsShort", { s: seconds(ms) });
    this.#sent.replaceChildren(argumentsOf(sent ?? ""));
    this.#result.textContent = visible(result ?? "");
    this.#resultBox.hidden = !result || state === "refused"; // the result of a refused call is only for the model
    this.#asks.hidden = state !== "waiting";
  }

  settle() {
    const { state } = this.element.dataset;
    if (!OPEN.has(state)) return;
    this.element.dataset.state = state === "waiting" ? "refused" : "interrupted"; // a waiting call was never made
    setText(this.#state, `tool_${this.element.dataset.state}`);
    this.#asks.hidden = true;
  }
}
