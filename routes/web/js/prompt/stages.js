/** Formats ranks and scores of a search. */

import { el } from "../base/dom.js";
import { word } from "./parts.js";

/** Dense and fused scores are below 1; sparse scores are larger sums. */
const DIGITS = { dense: 3, sparse: 2, fused: 3 };

export const STAGES = ["dense", "sparse", "fused", "reranked"];

export function scoreText(stage, place) {
  if (stage === "reranked") return percentText(place?.probability);
  return Number.isFinite(place?.score) ? place.score.toFixed(DIGITS[stage]) : "";
}

/** A probability as a percentage; small ones with a decimal, so that they can be distinguished. */
export function percentText(chance) {
  if (!Number.isFinite(chance)) return "";
  const percent = chance * 100;
  return `${percent < 10 ? percent.toFixed(1) : Math.round(percent)}%`;
}

/** A rank from 1, or a dash if the candidate is not in the list. */
export const rankNode = (place) =>
  place?.rank != null ? el("span", { class: "rank", text: place.rank })
    : el("span", { class: "rank none", role: "img", label: "rankNone", text: "–" });

/** The outcome of a candidate, in words. */
export function outcome({ kept, dropped_by: stage, budget }) {
  if (!kept) return el("span", { class: "outcome", i18n: word("stage", stage) });
  return el("span", { class: "outcome kept", i18n: budget?.index ? ["shownAs", { n: budget.index }] : "stage_shown" });
}
