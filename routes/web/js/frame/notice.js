/** One quiet line for the whole page: what an action did, or why it could not be done. */

import { ApiError } from "../api/http.js";
import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";

const SHOWN_MS = 6000;
const WHY = { 401: "whyRefused", 403: "whyRefused", 429: "whyBusy", 503: "whyBusy", 507: "whyFull" };

let timer = 0;

/** Says it for a moment. */
export function say(key, vars) {
  show("done", key, vars);
  timer = setTimeout(hush, SHOWN_MS);
}

/** Says that something failed until it is put away. `key`'s words take a {why}; `missing` is why when it is a 404. */
export function sayFailed(key, error, missing) {
  show("failed", key, { why: reason(error, missing) });
}

export function hush() {
  clearTimeout(timer);
  line().replaceChildren();
}

const line = () => document.querySelector("#notice");

function show(kind, key, vars) {
  clearTimeout(timer);
  line().dataset.kind = kind;
  line().replaceChildren(el("span", { i18n: [key, vars] }),
    el("button", { class: "quiet", type: "button", label: "close", on: { click: hush } }, icon("close")));
}

function reason(error, missing) {
  if (!(error instanceof ApiError)) return t("unreachable");
  if (error.status === 404 && missing) return t(missing);
  return WHY[error.status] ? t(WHY[error.status]) : error.message;
}
