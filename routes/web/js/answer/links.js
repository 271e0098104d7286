/** Says where a link leads when its text says otherwise: "https://bank.example" that leads to evil.test. */

import { el } from "../base/dom.js";

// A text that reads as an address: with its scheme or www, or nothing but a name with a dot in it.
const ADDRESS = /(?:\b[a-z][a-z+.-]*:\/\/|\bwww\.)\S+|^\s*[^\s/]+\.[^\s/.]{2,}(?:[/?#:]\S*)?\s*$/giu;

export function tellHosts(fragment) {
  for (const link of fragment.querySelectorAll("a[href]")) {
    const { protocol, hostname: host } = link;
    if (protocol === ":") link.replaceWith(...link.childNodes); // half an address leads nowhere
    else if (host && imitates(link, host)) link.after(el("bdi", { class: "faint", text: ` (${host})` }));
  }
}

/** Also a name before an @, and letters of other scripts that look like Latin ones. */
function imitates({ textContent: text, username }, host) {
  return Boolean(username) || host.includes("xn--") || (text.match(ADDRESS) ?? []).some((named) => hostOf(named) !== host);
}

function hostOf(text) {
  const address = text.includes("://") ? text.trim() : `http://${text.trim()}`;
  return URL.canParse(address) ? new URL(address).hostname.replace(/[.,;:!?)]+$/, "") : "";
}
