/** What a reader can do with a conversation. Each says in words how it went. */

import { ApiError } from "../api/http.js";
import { changeSession, deleteSession, exportSession, readSession } from "../api/sessions.js";
import { confirmRemoval } from "../base/dialogs.js";
import { el } from "../base/dom.js";
import { formatDay, t } from "../base/i18n.js";
import { toggleMenu } from "../base/menu.js";
import { hush, say, sayFailed } from "../frame/notice.js";
import { showShares } from "./share.js";

/**
 * `onChanged(session)` hears of what the server now says of it, `onErased(id)` of one that is gone. `leafOf(id)` knows
 * where the branch of it ends that is shown.
 */
export class SessionActions {
  constructor({ onChanged, onErased, leafOf }) {
    Object.assign(this, { onChanged, onErased, leafOf });
  }

  /** Resolves to whether it has the new title. */
  async rename({ session_id: id }, title) {
    return this.#change(id, { title }, "renameFailed");
  }

  async hold({ session_id: id }, hold) {
    if (await this.#change(id, { hold }, "holdFailed")) say(hold ? "held" : "holdEnded");
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

  share({ session_id: id }) {
    hush();
    return showShares(id, this.leafOf(id));
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
      if (!isDeleted(error)) return;
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

const isDeleted = (error) => error instanceof ApiError && error.status === 404;

/* The menu of one conversation, the same in the list and above the conversation itself. */

const DAY_MS = 86_400_000;

/** `actions`: a SessionActions; `rename()` begins to edit the title; `days` is the server's age limit. */
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

/** Turns go by their own age: the last of them when the newest is too old. */
function expiry({ expire_days: own, updated_at: updated }, days) {
  const limit = own ?? days;
  if (!limit) return null;
  return ["expires", { n: limit, date: formatDay(new Date(new Date(updated).getTime() + limit * DAY_MS)) }];
}

/* Handing the reader a file. */

const REVOKE_MS = 10_000; // a browser may read it a moment later

/** The name that the server made for it, of the title and safe; `otherwise` where it named none. */
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
