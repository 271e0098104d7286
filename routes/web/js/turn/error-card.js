/** What went wrong with a turn, in the reader's words, and what can be done. The server's own are folded away. */

import { copyText } from "../base/clipboard.js";
import { el, icon, setText } from "../base/dom.js";
import { hasWords, wordedCode } from "../base/i18n.js";

/**
 * `message` is a person's sentence or a key of ours, `code` the error's; `onRetry` is null when trying again
 * cannot help, and `retryAfterS` how long the server asks to wait before it.
 */
export function errorCard({ message = "", code = "", requestId, onRetry, retryAfterS = 0 }) {
  const known = wordedCode(code);
  const sentence = known && !hasWords(message) ? message : "";
  return el("div", { class: "error-card", "data-code": code },
    el("p", { class: "cause", i18n: known ? `cause_${known}` : message || "failedUnknown" }),
    hint(known, onRetry),
    onRetry && el("div", { class: "error-actions" }, retryButton(onRetry, retryAfterS)),
    (sentence || requestId) && details(sentence, code, requestId));
}

/** What to try, by the code. */
function hint(code, onRetry) {
  const key = code === "llm_unavailable" && !onRetry ? "try_llm_refused" : `try_${code}`;
  return hasWords(key) && el("p", { class: "hint-line", i18n: key });
}

function retryButton(onRetry, waitS) {
  const words = el("span", { i18n: "retry" });
  const button = el("button", { class: "button retry", type: "button", on: { click: onRetry } }, icon("retry"), words);
  if (waitS > 0) countDown(button, words, Math.ceil(waitS));
  return button;
}

function countDown(button, words, left) {
  button.disabled = left > 0;
  if (left > 0) setText(words, "retryIn", { s: left });
  else setText(words, "retry");
  if (left > 0) setTimeout(() => countDown(button, words, left - 1), 1000);
}

/** For the one who is to mend it: the server's sentence, the code, the reference. */
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
