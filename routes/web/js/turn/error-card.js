/** A card that says in plain words what went wrong with a turn and what to try. The server's own words are collapsed. */

import { copyText } from "../base/clipboard.js";
import { el, icon, setText } from "../base/dom.js";
import { hasWords, wordedCode } from "../base/i18n.js";

const LONGEST_COUNT_S = 300; // for longer waits there is a hint instead of a countdown, and the button stays enabled

/**
 * `message` is a sentence or a text key, `code` the error code, `cause` why the model failed; `onRetry` is null if a
 * retry cannot help, `retryAfterS` the wait that the server asks for. `broken`: a partial answer is shown above the card.
 */
export function errorCard({ message = "", code = "", cause = "", requestId, onRetry, retryAfterS = 0, broken = false }) {
  const known = wordsOf(code, cause, broken);
  const sentence = known && !hasWords(message) ? message : "";
  return el("div", { class: "error-card", "data-code": code },
    el("p", { class: "cause", i18n: known ? `cause_${known}` : message || "failedUnknown" }),
    hint(known, onRetry),
    onRetry && retryAfterS > LONGEST_COUNT_S && el("p", { class: "hint-line", i18n: ["retryLater", { n: Math.ceil(retryAfterS / 60) }] }),
    onRetry && el("div", { class: "error-actions" }, retryButton(onRetry, retryAfterS)),
    (sentence || requestId) && details(sentence, code, requestId));
}

/** The code whose texts are shown: for a failed model its cause, if it has a text and the answer had not begun. */
function wordsOf(code, cause, broken) {
  if (code !== "llm_unavailable") return wordedCode(code);
  return broken ? "llm_truncated" : wordedCode(`llm_${cause}`) || code;
}

/** What to try, depending on the code. */
function hint(code, onRetry) {
  const key = code.startsWith("llm_") && !onRetry ? "try_llm_refused" : `try_${code}`;
  return hasWords(key) && el("p", { class: "hint-line", i18n: key });
}

function retryButton(onRetry, waitS) {
  const words = el("span", { i18n: "retry" });
  const button = el("button", { class: "button retry", type: "button", on: { click: onRetry } }, icon("retry"), words);
  if (waitS > 0 && waitS <= LONGEST_COUNT_S) countDown(button, words, Math.ceil(waitS));
  return button;
}

function countDown(button, words, left) {
  button.disabled = left > 0;
  if (left > 0) setText(words, "retryIn", { s: left });
  else setText(words, "retry");
  if (left > 0) setTimeout(() => countDown(button, words, left - 1), 1000);
}

/** Details for the operator: the server's sentence, the code and the request id. */
function details(sentence, code, requestId) {
  return el("details", { class: "original" }, el("summary", { i18n: "errorDetails" }),
    sentence && el("p", { class: "more", text: sentence }),
    el("p", { class: "error-facts" }, code && el("code", { class: "error-code", text: code }), requestId && reference(requestId)));
}

function reference(requestId) {
  const copy = el("button", { class: "quiet copy-reference", type: "button", label: "copyReference",
    on: { click: () => copyText(requestId, copy) } }, icon("copy"));
  return el("span", { class: "reference" }, el("span", { class: "request-id", i18n: ["requestId", { id: requestId }] }), copy);
}
