/** What a reader does with a turn of the conversation, as TurnActions takes it; each function gets the turn's view. */

import { isWriting } from "../base/dom.js";
import { t } from "../base/i18n.js";
import { inPlace } from "./arrivals.js";
import { QuestionEditor } from "./editor.js";

export class Acts {
  #editor = null;

  constructor(chat) {
    this.chat = chat;
    this.edit = (view) => this.#edit(view);
    this.regenerate = (view) => this.#askBeside(view, view.question);
    this.continueFrom = (view) => this.#continueFrom(view);
    this.toVersion = (view, step) => this.#toVersion(view, step);
    addEventListener("pagehide", () => this.closeEditor(), { capture: true }); // before drafts are stored
  }

  get editing() {
    return this.#editor !== null;
  }

  /** The newest question becomes a text box, once it has its answer. */
  editLast() {
    const view = this.chat.shown.lastQuestion;
    if (view && view.status !== "running") this.#edit(view);
  }

  /** Because the reader does something else: what was typed there is not lost. */
  closeEditor() {
    const { changed } = this.#editor ?? {};
    this.#editor?.close();
    if (changed) this.chat.onTextLeft(changed, this.chat.sessionId);
  }

  #edit(view) {
    this.closeEditor();
    this.#editor = new QuestionEditor(view, {
      maxChars: this.chat.maxChars(),
      onClose: () => (this.#editor = null),
      onSend: (question) => this.#askBeside(view, question),
    });
    this.#editor.open();
  }

  /** The button that had the keyboard leaves the page. */
  #askBeside(view, question) {
    this.chat.focusComposer();
    return this.chat.askBeside(view, question);
  }

  async #continueFrom(view) {
    await this.chat.go(view.turnId);
    if (!isWriting()) this.chat.focusComposer();
  }

  #toVersion(view, step) {
    const { shown, follower, branching, announce } = this.chat;
    const turnId = branching.versionBeside(view, step);
    if (!turnId) return;
    const versions = branching.tree.versionsOf(turnId);
    announce(t("versionOf", { n: versions.indexOf(turnId) + 1, of: versions.length }));
    this.chat.go(branching.tree.newestBelow(turnId), inPlace(follower, shown, { view, turnId, step }));
  }
}
