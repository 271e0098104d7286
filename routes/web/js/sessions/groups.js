/** Which heading a conversation stands under, by the day of its newest turn. */

import { daysAgo, formatMonth, t } from "../base/i18n.js";

const WEEK_DAYS = 7;

/** {key, title}: those of one group have the same key. A time that is none counts as long ago. */
export function groupOf(updatedAt) {
  const days = daysAgo(updatedAt);
  if (days <= 0) return { key: "today", title: t("today") };
  if (days === 1) return { key: "yesterday", title: t("yesterday") };
  if (days < WEEK_DAYS) return { key: "week", title: t("week") };
  if (Number.isNaN(days)) return { key: "earlier", title: t("earlier") };
  return { key: updatedAt.slice(0, 7), title: formatMonth(updatedAt) };
}
