/** The page's notice line: the outcome of an action, or why it failed. */

import { ApiError } from "../api/http.js";
import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";

const SHOWN_MS = 6000;
const WHY = { 401: "whyRefused", 403: "whyRefused", 429: "whyBusy", 503: "whyBusy", 507: "whyFull" };

let timer = 0;

/** Shows a message for a moment. */
export function notify(key, vars) {
  show("done", key, vars);
  timer = setTimeout(clearNotice, SHOWN_MS);
}

/** Shows an error until it is closed. The text of `key` takes a {why}; `missing` is the reason for a 404. */
export function notifyFailure(key, error, missing) {
  show("failed", key, { why: reason(error, missing) });
}

export function clearNotice() {
  clearTimeout(timer);
  line().replaceChildren();
}

const line = () => document.querySelector("#notice");

function show(kind, key, vars) {
  clearTimeout(timer);
  line().dataset.kind = kind;
  line().replaceChildren(el("span", { i18n: [key, vars] }),
    el("button", { class: "quiet", type: "button", label: "close", on: { click: clearNotice } }, icon("close")));
}

function reason(error, missing) {
  if (!(error instanceof ApiError)) return t("unreachable");
  if (error.status === 404 && missing) return t(missing);
  return WHY[error.status] ? t(WHY[error.status]) : error.message;
}
