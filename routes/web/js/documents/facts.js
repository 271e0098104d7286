/** The metadata shown with a document. */

import { el } from "../base/dom.js";
import { formatBytes, formatTime } from "../base/i18n.js";

const kindOf = (name) => /.\.([^./\\\s]{1,8})$/.exec(name)?.[1].toUpperCase() ?? "";

/** The path, for documents of a followed folder or the bundled guide, whose file names may repeat; otherwise the name. */
export function nameOf({ file_name: name, external_id: path, sample, source }) {
  return (sample || source) && path?.endsWith(`/${name}`) ? path.slice(source ? source.length + 1 : 0) : name;
}

/** Spans; the style sheet adds the separators. */
export function factsOf({
  file_name: name, status, chunk_count: n, unread_pages: pages, size_bytes: bytes, date, source, shared,
}) {
  const kind = kindOf(name);
  return [
    kind && el("span", { text: kind }),
    status === "ready" && el("span", { i18n: ["chunks", { n }] }),
    bytes > 0 && el("span", { text: formatBytes(bytes) }),
    date && el("span", { text: date }),
    source && el("span", { i18n: ["docFromSource", { source }] }),
    shared && el("span", { i18n: "docSharedDocument" }),
    pages > 0 && el("span", { i18n: ["docUnreadPages", { n: pages }] }),
  ].filter(Boolean);
}

export const tagsOf = ({ tags = [] }) => tags.map((tag) => el("span", { class: "tag", text: tag }));

export const addedOf = ({ created_at: moment }) =>
  el("p", { class: "faint", i18n: ["docAddedAt", { time: formatTime(moment) }] });
