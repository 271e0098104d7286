/** What a reader can do with a conversation. Each says in words how it went. */

import { ApiError } from "../api/http.js";
import { changeSession, deleteSession, exportSession, readSession } from "../api/sessions.js";
import { confirmRemoval } from "../base/dialogs.js";
import { t } from "../base/i18n.js";
import { hush, say, sayFailed } from "../base/notice.js";
import { download, nameOf } from "./download.js";

/** `onChanged(session)` hears of what the server now says of it, `onErased(id)` of one that is gone. */
export class SessionActions {
  constructor({ onChanged, onErased }) {
    Object.assign(this, { onChanged, onErased });
  }

  /** Resolves to whether it has the new title. */
  async rename({ session_id: id }, title) {
    return this.#change(id, { title }, "renameFailed");
  }

  async hold({ session_id: id }, hold) {
    if (await this.#change(id, { hold }, "holdFailed")) say(hold ? "kept" : "keptNoMore");
  }

  async export({ session_id: id }, format) {
    hush();
    try {
      const response = await exportSession(id, format);
      download(await response.blob(), nameOf(response, `wenmai-${id.slice(0, 8)}.${format}`));
    } catch (error) {
      sayFailed("exportFailed", error, "sessionMissing");
    }
  }

  /** Asks first. Nothing vanishes from the list before the server says that it is erased. */
  async erase(session) {
    hush();
    const { session_id: id, title } = session;
    try {
      const { turn_count: n } = { ...session, ...(await readSession(id)) };
      if (!(await confirmRemoval("deleteSession", { title: title || t("untitled"), n }))) return;
      const { turns_erased: erased, proof } = (await deleteSession(id)) ?? {};
      say(proof?.hits ? "erasedNotAll" : "erased", { n: erased ?? n });
    } catch (error) {
      sayFailed("deleteFailed", error, "sessionMissing");
      if (!isGone(error)) return;
    }
    this.onErased(id);
  }

  async #change(id, changes, failed) {
    hush();
    try {
      this.onChanged(await changeSession(id, changes));
      return true;
    } catch (error) {
      sayFailed(failed, error, "sessionMissing");
      return false;
    }
  }
}

const isGone = (error) => error instanceof ApiError && error.status === 404;
