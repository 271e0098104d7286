/** Places and scores of a search as people read them. */

import { el } from "../base/dom.js";
import { word } from "./parts.js";

/** Dense and fused scores are below 1, sparse ones are sums of a few. */
const DIGITS = { dense: 3, sparse: 2, fused: 3 };

export const STAGES = ["dense", "sparse", "fused", "reranked"];

export function scoreText(stage, place) {
  if (stage === "reranked") return percentText(place?.probability);
  return Number.isFinite(place?.score) ? place.score.toFixed(DIGITS[stage]) : "";
}

/** A chance as a percentage; small ones with a decimal, so that they can be told apart. */
export function percentText(chance) {
  if (!Number.isFinite(chance)) return "";
  const percent = chance * 100;
  return `${percent < 10 ? percent.toFixed(1) : Math.round(percent)}%`;
}

/** A rank from 1, or that the list did not bring it. */
export const rankNode = (place) =>
  place?.rank != null ? el("span", { class: "rank", text: place.rank })
    : el("span", { class: "rank none", role: "img", label: "rankNone", text: "–" });

/** What became of a candidate, in words. */
export function outcome({ kept, dropped_by: stage, budget }) {
  if (!kept) return el("span", { class: "outcome", i18n: word("stage", stage) });
  return el("span", { class: "outcome kept", i18n: budget?.index ? ["shownAs", { n: budget.index }] : "stage_shown" });
}
