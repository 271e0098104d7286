/** The menu of one conversation, the same in the list and above the conversation itself. */

import { formatDay } from "../base/i18n.js";
import { toggleMenu } from "../base/menu.js";

const DAY_MS = 86_400_000;

/** `actions`: a SessionActions; `rename()` begins to edit the title; `days` is the server's age limit. */
export function showSessionMenu(opener, session, { actions, rename, days }) {
  const { hold } = session;
  toggleMenu(opener, {
    label: "sessionActions",
    note: hold ? "kept" : expiry(session, days),
    items: [
      { i18n: "rename", icon: "pencil", run: rename },
      { i18n: hold ? "release" : "hold", icon: "pin", run: () => actions.hold(session, !hold) },
      { i18n: "exportMarkdown", icon: "download", run: () => actions.export(session, "md") },
      { i18n: "exportJson", icon: "download", run: () => actions.export(session, "json") },
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
