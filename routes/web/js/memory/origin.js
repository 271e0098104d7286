/** A memory's origin: a link to its conversation, and the date. */

import { el } from "../base/dom.js";
import { formatDay } from "../base/i18n.js";

/** Takes a memory from the list or from a STATUS event. */
export function originOf({ session_id: session, turn_id: turnId, turn_ids: turnIds = [], created_at: created }) {
  const turn = turnId || turnIds[0];
  const words = (key) => [key, { day: formatDay(new Date(created)) }];
  if (!turn) return el("span", { class: "faint", i18n: words("memoryByHand") });
  if (!session) return el("span", { class: "faint", i18n: words("memoryAsked") });
  return el("a", { href: `#/s/${session}/${turn}`, i18n: words("memoryFrom") });
}
