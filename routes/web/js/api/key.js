/** The access key of this tab. Storage may be forbidden: then it lasts until reload. */

const NAME = "wenmai.key";
const SENDABLE = /^[\x21-\x7e]+$/; // what a header may carry; fetch throws on anything else

let known = null;

/** The key, or null: a stored one that no header can carry is none. */
export function readKey() {
  const key = known ?? stored();
  return key && SENDABLE.test(key) ? key : null;
}

export function keepKey(key) {
  known = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // remembered in `known` for this visit
  }
}

/** A key that cannot be sent is wrong whatever the server says. */
export const isSendable = (key) => SENDABLE.test(key);

function stored() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null;
  }
}
