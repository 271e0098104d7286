/** The handlers of TurnActions: what the user can do with a turn. Each function gets the turn's view. */

import { isTyping } from "../base/dom.js";
import { t } from "../base/i18n.js";
import { inPlace } from "./scrolling.js";
import { QuestionEditor } from "./editor.js";

export class TurnHandlers {
  #editor = null;

  constructor(chat) {
    this.chat = chat;
    this.edit = (view) => this.#edit(view);
    this.regenerate = (view) => this.#askVersion(view, view.question);
    this.continueFrom = (view) => this.#continueFrom(view);
    this.toVersion = (view, step) => this.#toVersion(view, step);
    addEventListener("pagehide", () => this.closeEditor(), { capture: true }); // before drafts are stored
  }

  get editing() {
    return this.#editor !== null;
  }

  /** Opens an editor on the newest question, unless it is still being answered. */
  editLast() {
    const view = this.chat.shown.lastQuestion;
    if (view && view.status !== "running") this.#edit(view);
  }

  /** Closes the editor because the user does something else; changed text is not lost. */
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
      onSend: (question) => this.#askVersion(view, question),
    });
    this.#editor.open();
  }

  /** Moves the focus first, because the focused button is about to be removed. */
  #askVersion(view, question) {
    this.chat.focusComposer();
    return this.chat.askVersion(view, question);
  }

  async #continueFrom(view) {
    await this.chat.go(view.turnId);
    if (!isTyping()) this.chat.focusComposer();
  }

  #toVersion(view, step) {
    const { shown, follower, branching, announce } = this.chat;
    const turnId = branching.adjacentVersion(view, step);
    if (!turnId) return;
    const versions = branching.tree.versionsOf(turnId);
    announce(t("versionOf", { n: versions.indexOf(turnId) + 1, of: versions.length }));
    this.chat.go(branching.tree.newestBelow(turnId), inPlace(follower, shown, { view, turnId, step }));
  }
}
