/** What is told of a document in small print. */

import { el } from "../base/dom.js";
import { formatTime } from "../base/i18n.js";

const UNITS = ["B", "KB", "MB", "GB"];

/** 1 KB is 1,000 bytes, as the server's limits count. */
export function formatBytes(bytes) {
  const step = Math.min(UNITS.length - 1, bytes < 1 ? 0 : Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** step;
  return `${value.toFixed(step && value < 10 ? 1 : 0)} ${UNITS[step]}`;
}

export const kindOf = (name) => /.\.([^./\\\s]{1,8})$/.exec(name)?.[1].toUpperCase() ?? "";

/** Spans, a separator between them is the style sheet's. */
export function factsOf({ file_name: name, status, chunk_count: n, size_bytes: bytes, date, source, shared }) {
  const kind = kindOf(name);
  return [
    kind && el("span", { text: kind }),
    status === "ready" && el("span", { i18n: ["chunks", { n }] }),
    bytes > 0 && el("span", { text: formatBytes(bytes) }),
    date && el("span", { text: date }),
    source && el("span", { i18n: ["docFromSource", { source }] }),
    shared && el("span", { i18n: "docSharedDocument" }),
  ].filter(Boolean);
}

export const tagsOf = ({ tags = [] }) => tags.map((tag) => el("span", { class: "tag", text: tag }));

/** A wall-clock hour and minute, for "again at 14:05:10". */
export function clockOf(moment) {
  const date = new Date(moment ?? "");
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString(document.documentElement.lang);
}

export const addedOf = ({ created_at: moment }) =>
  el("p", { class: "faint", i18n: ["docAddedAt", { time: formatTime(moment) }] });
