/** Handing the reader a file. */

import { el } from "../base/dom.js";

const REVOKE_MS = 10_000; // a browser may read it a moment later

/** The name that the server made for it, of the title and safe; `otherwise` where it named none. */
export function nameOf(response, otherwise) {
  const encoded = /filename\*=UTF-8''([^;]+)/i.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  try {
    return encoded ? decodeURIComponent(encoded) : otherwise;
  } catch {
    return otherwise;
  }
}

export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_MS);
}
