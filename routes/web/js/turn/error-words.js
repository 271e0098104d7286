/** The words for an error of the server's: by its code, or by the kind of its HTTP status where it has none. */

import { hasWords } from "../base/i18n.js";

/** The code whose words these are: `code` itself, that of its kind, or "" where the page has none. */
export function wordedCode(code) {
  if (hasWords(`cause_${code}`)) return code;
  const [, kind] = /^http_([45])\d\d$/.exec(code) ?? [];
  return kind ? `http_${kind}xx` : "";
}

/** What an ApiError says, as a key of ours or as the server's own sentence. */
export function causeOf({ code, status, message }) {
  const known = wordedCode(code || `http_${status}`);
  return known ? `cause_${known}` : message;
}
