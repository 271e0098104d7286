/** The memories used for an answer, listed below it; each can be corrected. */

import { memoriesOfTurn } from "../api/memories.js";
import { publish } from "../base/bus.js";
import { el, icon } from "../base/dom.js";
import { originOf } from "./origin.js";

export class UsedMemories {
  element = el("details", { class: "used-memories", hidden: true });

  show(memories) {
    this.element.hidden = !memories.length;
    this.element.replaceChildren(
      el("summary", {}, icon("chevron"), el("span", { i18n: ["memoryUsed", { n: memories.length }] })),
      el("ul", {}, ...memories.map((memory) => this.#line(memory))),
    );
  }

  /** For a stored turn; memories deleted since are missing. */
  async showStored(turnId, ids = []) {
    if (ids.length) this.show(await memoriesOfTurn(turnId).catch(() => []));
  }

  /** An episode stays as it was said in its conversation; other memories can be corrected. */
  #line(memory) {
    const wrong = () => publish("open-memory", { memoryId: memory.memory_id, content: memory.content });
    const button = el("button", { class: "text-button", type: "button", i18n: "memoryWrong", on: { click: wrong } });
    const put = memory.type === "episode" ? [] : [button];
    return el("li", {}, el("span", { text: memory.content }), originOf(memory), ...put);
  }
}
