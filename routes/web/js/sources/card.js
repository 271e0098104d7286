/** One source as a folding card: its head always, its body when it is first opened. */

import { el } from "../base/dom.js";
import { cardBody } from "./card-body.js";

/** `deck` is the SourcesView that the card belongs to. */
export function sourceCard(citation, deck) {
  const card = el("details", { class: "source", "data-index": citation.index });
  card.append(summary(citation));
  card.firstChild.addEventListener("click", (event) => turn(event, card));
  card.fill = () => {
    if (card.dataset.filled) return;
    card.dataset.filled = "1";
    const body = cardBody(citation, deck);
    card.append(body.element);
    body.settle();
  };
  card.addEventListener("toggle", () => card.open && card.fill()); // a search in the page opens it too
  return card;
}

/** Its body comes with the opening, not a frame after it. */
function turn(event, card) {
  event.preventDefault();
  card.open = !card.open;
  if (card.open) card.fill();
}

/** Whether nothing is left of it but its number: the document was erased, and its words with it. */
export const isErased = ({ removed, text, file_name: name }) => Boolean(removed) && !text && !name;

function summary(citation) {
  const erased = isErased(citation);
  return el("summary", {},
    el("span", { class: "number", text: citation.index }),
    el("span", { class: "source-head" }, fileName(citation),
      el("span", { class: "place" }, ...(erased ? [] : standing(citation)), ...placeOf(citation))),
    erased || citation.score == null ? el("span", { class: "score" }) : score(citation.score),
    erased ? el("span", { class: "passage", i18n: "sourceErased" })
      : el("span", { class: "passage", text: citation.key_passage || citation.text }));
}

export function fileName(citation) {
  if (isErased(citation)) return el("span", { class: "file standing", i18n: "sourceRemoved" });
  return el("span", { class: "file", text: citation.file_name });
}

/** What became of the document since: an outdated one's text is what it said then, a removed one's is gone. */
function standing({ removed, outdated }) {
  const key = removed ? "sourceRemoved" : outdated ? "sourceOutdated" : "";
  return key ? [el("span", { class: "standing", i18n: key })] : [];
}

/** Heading, page and date, as far as they are told. */
export const placeOf = ({ heading, page, date }) => [
  heading && el("span", { text: heading }),
  page != null && el("span", { i18n: ["page", { n: page }] }),
  date && el("time", { datetime: date, text: date }),
];

function score(value) {
  const percent = Math.round(Math.min(1, Math.max(0, Number(value) || 0)) * 100);
  const fill = el("span", { class: "score-fill" });
  fill.style.width = `${percent}%`;
  return el("span", { class: "score", role: "img", label: ["relevance", { percent }] },
    el("span", { class: "score-track" }, fill), el("span", { class: "score-number", text: `${percent}%` }));
}
