/** The server's HTTP API. Every refusal becomes an ApiError; a broken connection stays a TypeError. */

import { publish } from "../base/bus.js";
import { setText } from "../base/dom.js";
import { causeOf, language } from "../base/i18n.js";

export class ApiError extends Error {
  /** `retryAfterS`: the server's Retry-After in seconds, 0 if absent. */
  constructor(status, { code = "", message = "", retryable = false, request_id = "" } = {}, retryAfterS = 0) {
    super(message || `HTTP ${status}`);
    Object.assign(this, { status, code, retryable, requestId: request_id, retryAfterS });
  }
}

/** Runs a dialog's action; if it fails, shows the reason in `notice`. */
export async function runWithNotice(notice, work) {
  notice.textContent = "";
  try {
    await work();
  } catch (error) {
    setText(notice, error instanceof ApiError ? causeOf(error) : "unreachable");
  }
}

/** The server's base path: "" or, behind a proxy, its path prefix. This file is /web/<version>/js/api/http.js. */
const PREFIX = new URL("../../../..", import.meta.url).pathname.slice(0, -1);
export const address = (path) => PREFIX + path;

/** Asks the user for an access key; set by the app. Resolves to the key, or null when declined. */
let askForKey = async () => null;
export const onKeyNeeded = (ask) => (askForKey = ask);

/** The authentication headers. */
export function identity() {
  const key = readKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Describes a request as it begins: who caused it, and the key it is sent with. */
export const requestContext = (method) => ({ ...origin(method), key: readKey() });

/** After a 401: whether to resend the request `begun`, with a key entered now or in the meantime. */
export async function renewKey(begun) {
  if (readKey() !== begun.key) return true;
  if (!mayAsk(begun)) return false;
  asking ??= newKey(begun.key).finally(() => (asking = null));
  const key = await asking;
  return Boolean(key) && key === readKey(); // a request is not resent under another person's key
}

let asking = null; // one dialog, however many requests were refused at once

/** Resolves to a key that the server accepts, or null if the user declined. */
async function newKey(refused) {
  let key = await askForKey(refused);
  while (key && !(await isAccepted(key))) key = await askForKey(key);
  keyAnswered(Boolean(key));
  if (key && readKey() && key !== readKey()) switchKey(key);
  else if (key && !readKey()) {
    saveKey(key);
    publish("key-changed");
  }
  return key;
}

async function isAccepted(key) {
  if (!isSendable(key)) return false;
  const response = await fetch(address("/settings/public"), { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  if (response.ok || response.status === 401) return response.ok;
  throw await refusal(response);
}

/** Another key belongs to another owner, and the page holds the former owner's data: it reloads, with `key` or none. */
function switchKey(key) {
  store(key);
  publish("owner-changed");
}

export const forgetKey = () => switchKey(null);

export async function send(path, options = {}, again = true) {
  const begun = requestContext(options.method);
  const headers = { "Accept-Language": language(), ...options.headers, ...identity() };
  const response = await fetch(address(path), { ...options, headers, cache: "no-store" }).catch((error) => {
    if (!options.signal?.aborted) pollUntilBack();
    throw error;
  });
  if (response.ok) return response;
  if (UNAVAILABLE.has(response.status)) pollUntilBack();
  if (response.status === 401 && again && (await renewKey(begun))) return send(path, options, false);
  throw await refusal(response);
}

const UNAVAILABLE = new Set([502, 503, 504]); // from the server or from a proxy
const POLL_MS = 3000;

let isPolling = false;

/** Polls until the server is back, then notifies the page, which loads what it could not load before. */
async function pollUntilBack() {
  if (isPolling) return;
  isPolling = true;
  const isUp = async () => (await fetch(address("/health/live"), { cache: "no-store" }).catch(() => null))?.ok;
  do await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  while (!(await isUp()));
  isPolling = false;
  publish("server-back");
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
}

/** The reply's JSON; null for a 204 and for a body that is not JSON. */
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

/* Which refused requests may ask the user for a key: after a decline, only those that the user caused since then. */

const CLICK_MS = 1000; // a read that begins this soon after a click is attributed to it
const CLICKABLE = "button, a, select, summary, input[type=file]";

let clickedMs = -Infinity;
let declinedMs = null;

addEventListener("click", ({ target }) => target.closest?.(CLICKABLE) && (clickedMs = performance.now()), true);

/** Call when a request begins: whether the user caused it. A write always counts as caused by the user. */
function origin(method = "GET") {
  const beganMs = performance.now();
  return { beganMs, byUser: method !== "GET" || beganMs - clickedMs < CLICK_MS };
}

const mayAsk = ({ beganMs, byUser }) => declinedMs === null || (byUser && beganMs > declinedMs);

/** The user entered a key or declined; after a decline, earlier clicks no longer open the dialog. */
function keyAnswered(hasKey) {
  declinedMs = hasKey ? null : performance.now();
  if (!hasKey) clickedMs = -Infinity;
}

/* The access key of this tab. If storage is forbidden, it lasts until reload. */

const NAME = "wenmai.key";
const SENDABLE = /^[\x21-\x7e]+$/; // the characters that a header may carry; fetch throws on anything else

let currentKey = stored(); // the key at page load, or the first one entered

/** The key, or null if there is none or it cannot be sent in a header. */
export function readKey() {
  return currentKey && isSendable(currentKey) ? currentKey : null;
}

export function saveKey(key) {
  currentKey = key;
  store(key);
}

/** A key that cannot be sent in a header cannot be right. */
export const isSendable = (key) => SENDABLE.test(key);

/**
 * A storage prefix that separates what different key holders leave in this tab: 32 bits of the key (FNV-1a), or ""
 * without a key. Browsers offer SHA-256 only over HTTPS and on localhost.
 */
export function ownerPrefix() {
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
    // `currentKey` remembers it until reload
  }
}

function stored() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null;
  }
}
