/** What an answer was told of other conversations, below it; each can be put right. */

import { memoriesOfTurn } from "../api/memories.js";
import { tell } from "../base/bus.js";
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

  /** Of a turn that is read again; what was deleted since is not there. */
  async showStored(turnId, ids = []) {
    if (ids.length) this.show(await memoriesOfTurn(turnId).catch(() => []));
  }

  /** What was said in another conversation stands there; a memory can be put right. */
  #line(memory) {
    const wrong = () => tell("open-memory", { memoryId: memory.memory_id, content: memory.content });
    const button = el("button", { class: "text-button", type: "button", i18n: "memoryWrong", on: { click: wrong } });
    const put = memory.type === "episode" ? [] : [button];
    return el("li", {}, el("span", { text: memory.content }), originOf(memory), ...put);
  }
}
