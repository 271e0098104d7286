/** Which refused request may ask the reader for a key: after a decline only one the reader caused since then. */

const ACT_MS = 1000; // a read that begins so soon after a click belongs to it
const ACTS = "button, a, select, summary, input[type=file]";

let actedMs = -Infinity;
let declinedMs = null;

addEventListener("click", ({ target }) => target.closest?.(ACTS) && (actedMs = performance.now()), true);

/** To be taken when a request begins: whether the reader caused it. What changes something always is the reader's. */
export function origin(method = "GET") {
  const beganMs = performance.now();
  return { beganMs, byReader: method !== "GET" || beganMs - actedMs < ACT_MS };
}

export const mayAsk = ({ beganMs, byReader }) => declinedMs === null || (byReader && beganMs > declinedMs);

/** The reader gave a key, or would not: then what they did before asks no more. */
export function answered(given) {
  declinedMs = given ? null : performance.now();
  if (!given) actedMs = -Infinity;
}
