/** The server's HTTP API. Every refusal becomes an ApiError; a broken connection stays a TypeError. */

import { tell } from "../base/bus.js";
import { setText } from "../base/dom.js";
import { causeOf, language } from "../base/i18n.js";

export class ApiError extends Error {
  /** `retryAfterS`: when the server asks to come again, 0 when it did not say. */
  constructor(status, { code = "", message = "", retryable = false, request_id = "" } = {}, retryAfterS = 0) {
    super(message || `HTTP ${status}`);
    Object.assign(this, { status, code, retryable, requestId: request_id, retryAfterS });
  }
}

/** Does the work of a dialog; why it failed is written into its `notice`. */
export async function orNotice(notice, work) {
  notice.textContent = "";
  try {
    await work();
  } catch (error) {
    setText(notice, error instanceof ApiError ? causeOf(error) : "unreachable");
  }
}

/** Where the server is: "" or, behind a proxy, the prefix that it is reached below. This file is /web/<version>/js/api/http.js. */
const PREFIX = new URL("../../../..", import.meta.url).pathname.slice(0, -1);
export const address = (path) => PREFIX + path;

/** Asks the reader for an access key; set by the app. Resolves to the key, or null when declined. */
let askForKey = async () => null;
export const onKeyNeeded = (ask) => (askForKey = ask);

/** The headers that say who asks. */
export function identity() {
  const key = readKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** A request as it begins: who caused it, and the key it is sent with. */
export const begin = (method) => ({ ...origin(method), key: readKey() });

/** After a 401: whether the request `begun` is to be sent again, with a key given now or since then. */
export async function renewKey(begun) {
  if (readKey() !== begun.key) return true;
  if (!mayAsk(begun)) return false;
  asking ??= newKey(begun.key).finally(() => (asking = null));
  const key = await asking;
  return Boolean(key) && key === readKey(); // what one person asked is not sent as another's
}

let asking = null; // one dialog for however many requests were refused at once

/** Resolves to a key that the server takes, or null when the reader declined. */
async function newKey(refused) {
  let key = await askForKey(refused);
  while (key && !(await isAccepted(key))) key = await askForKey(key);
  answered(Boolean(key));
  if (key && readKey() && key !== readKey()) beginAnew(key);
  else if (key && !readKey()) {
    keepKey(key);
    tell("key-changed");
  }
  return key;
}

async function isAccepted(key) {
  if (!isSendable(key)) return false;
  const response = await fetch(address("/settings/public"), { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  if (response.ok || response.status === 401) return response.ok;
  throw await refusal(response);
}

/** Another key is another owner's, and what the page holds the former's: it begins anew, with `key` or none. */
function beginAnew(key) {
  store(key);
  tell("owner-changed");
}

export const forgetKey = () => beginAnew(null);

export async function send(path, options = {}, again = true) {
  const begun = begin(options.method);
  const headers = { "Accept-Language": language(), ...options.headers, ...identity() };
  const response = await fetch(address(path), { ...options, headers, cache: "no-store" }).catch((error) => {
    if (!options.signal?.aborted) untilBack();
    throw error;
  });
  if (response.ok) return response;
  if (AWAY.has(response.status)) untilBack();
  if (response.status === 401 && again && (await renewKey(begun))) return send(path, options, false);
  throw await refusal(response);
}

const AWAY = new Set([502, 503, 504]); // also in a proxy's words
const ASK_AGAIN_MS = 3000;

let isAway = false;

/** Asks whether the server is there until it is, and tells the page, which reads then what it could not. */
async function untilBack() {
  if (isAway) return;
  isAway = true;
  const isUp = async () => (await fetch(address("/health/live"), { cache: "no-store" }).catch(() => null))?.ok;
  do await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
  while (!(await isUp()));
  isAway = false;
  tell("server-back");
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
}

/** The reply's JSON; null for 204, and for a body that is none. */
export const readJson = async (path, options) => {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json().catch(() => null);
};
export const withJson = (method, body) => ({
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});
export const id = encodeURIComponent;

/* Which refused request may ask the reader for a key: after a decline only one the reader caused since then. */

const ACT_MS = 1000; // a read that begins so soon after a click belongs to it
const ACTS = "button, a, select, summary, input[type=file]";

let actedMs = -Infinity;
let declinedMs = null;

addEventListener("click", ({ target }) => target.closest?.(ACTS) && (actedMs = performance.now()), true);

/** To be taken when a request begins: whether the reader caused it. What changes something always is the reader's. */
function origin(method = "GET") {
  const beganMs = performance.now();
  return { beganMs, byReader: method !== "GET" || beganMs - actedMs < ACT_MS };
}

const mayAsk = ({ beganMs, byReader }) => declinedMs === null || (byReader && beganMs > declinedMs);

/** The reader gave a key, or would not: then what they did before asks no more. */
function answered(hasKey) {
  declinedMs = hasKey ? null : performance.now();
  if (!hasKey) actedMs = -Infinity;
}

/* The access key of this tab. Storage may be forbidden: then it lasts until reload. */

const NAME = "wenmai.key";
const SENDABLE = /^[\x21-\x7e]+$/; // what a header may carry; fetch throws on anything else

let known = stored(); // as the page began, or was given one where it had none

/** The key, or null: a stored one that no header can carry is none. */
export function readKey() {
  return known && isSendable(known) ? known : null;
}

export function keepKey(key) {
  known = key;
  store(key);
}

/** A key that cannot be sent is wrong whatever the server says. */
export const isSendable = (key) => SENDABLE.test(key);

/**
 * Tells what one key's holder left in this tab from another's, by 32 bits of the key (FNV-1a); "" without a key.
 * Browsers have SHA-256 only on HTTPS and on this machine.
 */
export function ownerMark() {
  const key = readKey() ?? "";
  let hash = 0x811c9dc5;
  for (const char of key) hash = Math.imul(hash ^ char.charCodeAt(0), 0x01000193);
  return key && `${(hash >>> 0).toString(36)}.`;
}

function store(key) {
  try {
    if (key) sessionStorage.setItem(NAME, key);
    else sessionStorage.removeItem(NAME);
  } catch {
    // remembered in `known` for this visit
  }
}

function stored() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null;
  }
}
