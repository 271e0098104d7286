/** The actions on a conversation. Each reports its outcome to the user. */

import { ApiError } from "../api/http.js";
import { changeSession, deleteSession, exportSession, readSession } from "../api/sessions.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el } from "../base/dom.js";
import { formatDay, t } from "../base/i18n.js";
import { toggleMenu } from "../base/menu.js";
import { clearNotice, notify, notifyFailure } from "../frame/notice.js";
import { showShares } from "./share.js";

/**
 * `onChanged(session)` gets the session as the server now has it, `onErased(id)` the id of a deleted one. `leafOf(id)`
 * returns the end of its shown branch.
 */
export class SessionActions {
  constructor({ onChanged, onErased, leafOf }) {
    Object.assign(this, { onChanged, onErased, leafOf });
  }

  /** Resolves to whether the title was changed. */
  async rename({ session_id: id }, title) {
    return this.#change(id, { title }, "renameFailed");
  }

  async hold({ session_id: id }, hold) {
    if (await this.#change(id, { hold }, "holdFailed")) notify(hold ? "held" : "holdEnded");
  }

  async export({ session_id: id }, format) {
    clearNotice();
    try {
      const response = await exportSession(id, format);
      download(await response.blob(), nameOf(response, `wenmai-${id.slice(0, 8)}.${format}`));
    } catch (error) {
      notifyFailure("exportFailed", error, "sessionMissing");
    }
  }

  share({ session_id: id }) {
    clearNotice();
    return showShares(id, this.leafOf(id));
  }

  /** Asks for confirmation. The list changes only after the server has confirmed the erasure. */
  async erase(session) {
    clearNotice();
    const { session_id: id, title } = session;
    try {
      const { turn_count: n } = { ...session, ...(await readSession(id)) };
      if (!(await confirmRemoval("deleteSession", { title: title || t("untitled"), n }))) return;
      const { turns_erased: erased, proof } = (await deleteSession(id)) ?? {};
      notify(proof?.hits ? "erasedNotAll" : "erased", { n: erased ?? n });
    } catch (error) {
      notifyFailure("deleteFailed", error, "sessionMissing");
      if (!isDeleted(error)) return;
    }
    this.onErased(id);
  }

  async #change(id, changes, failed) {
    clearNotice();
    try {
      this.onChanged(await changeSession(id, changes));
      return true;
    } catch (error) {
      notifyFailure(failed, error, "sessionMissing");
      return false;
    }
  }
}

const isDeleted = (error) => error instanceof ApiError && error.status === 404;

/* The menu of a conversation, used in the list and above the conversation. */

const DAY_MS = 86_400_000;

/** `actions`: a SessionActions; `rename()` starts editing the title; `days`: the server's age limit. */
export function showSessionMenu(opener, session, { actions, rename, days }) {
  const { hold } = session;
  toggleMenu(opener, {
    label: "sessionActions",
    note: hold ? "held" : expiry(session, days),
    items: [
      { i18n: "rename", icon: "pencil", run: rename },
      { i18n: hold ? "release" : "hold", icon: "pin", run: () => actions.hold(session, !hold) },
      { i18n: "exportMarkdown", icon: "download", run: () => actions.export(session, "md") },
      { i18n: "exportJson", icon: "download", run: () => actions.export(session, "json") },
      { i18n: "share", icon: "link", run: () => actions.share(session) },
      { i18n: "remove", icon: "trash", danger: true, run: () => actions.erase(session) },
    ],
  });
}

/** Turns expire one by one; the last of them when the newest is too old. */
function expiry({ expire_days: own, updated_at: updated }, days) {
  const limit = own ?? days;
  if (!limit) return null;
  return ["expires", { n: limit, date: formatDay(new Date(new Date(updated).getTime() + limit * DAY_MS)) }];
}

/* Downloading a file. */

const REVOKE_MS = 10_000; // the browser may read it a moment later

/** The safe file name that the server made from the title; `otherwise` if it sent none. */
function nameOf(response, otherwise) {
  const encoded = /filename\*=UTF-8''([^;]+)/i.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  try {
    return encoded ? decodeURIComponent(encoded) : otherwise;
  } catch {
    return otherwise;
  }
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_MS);
}
