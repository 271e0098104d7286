/** Parses SSE events into typed events of the prefix format. */

const TYPES = new Set(["SESSION", "STATUS", "THINK", "CONTENT", "SOURCE", "ERROR", "DONE"]);

/**
 * @returns {{type: string, n: number, text: string, value: any} | null}
 *   `value` is the parsed JSON of STATUS and SOURCE; null for an unknown event.
 */
export function readEvent({ id, data }) {
  const colon = data.indexOf(":");
  const type = data.slice(0, colon);
  if (colon < 0 || !TYPES.has(type)) return null;
  const text = data.slice(colon + 1);
  const value = type === "STATUS" || type === "SOURCE" ? parseJson(text) : null;
  return { type, n: Number(id.slice(id.lastIndexOf(":") + 1)) || 0, text, value };
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A UUID v4. `randomUUID` exists only over HTTPS and on localhost. */
export function newTurnId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
