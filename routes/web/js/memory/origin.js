/** Where a memory comes from: a link into its conversation, and when that was. */

import { el } from "../base/dom.js";
import { formatDay } from "../base/i18n.js";

/** Of a memory as the list has it, or as the STATUS event names it. */
export function originOf({ session_id: session, turn_id: turnId, turn_ids: turnIds = [], created_at: created }) {
  const turn = turnId || turnIds[0];
  const words = (key) => [key, { day: formatDay(new Date(created)) }];
  if (!turn) return el("span", { class: "faint", i18n: words("memoryByHand") });
  if (!session) return el("span", { class: "faint", i18n: words("memoryAsked") });
  return el("a", { href: `#/s/${session}/${turn}`, i18n: words("memoryFrom") });
}
