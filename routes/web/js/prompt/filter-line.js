/** What a question was limited to, in words. */

import { el } from "../base/dom.js";

/** `filters` as a request takes them; null when they limit nothing. */
export function filterLine({ tags = [], document_ids: documents = [], sources = [], since, until } = {}) {
  const limits = [
    tags.length > 0 && el("span", { i18n: ["filterTags", { n: tags.length, tags: tags.join("、") }] }),
    documents.length > 0 && el("span", { i18n: ["filterDocuments", { n: documents.length }] }),
    sources.length > 0 && el("span", { i18n: ["filterSources", { n: sources.length, sources: sources.join("、") }] }),
    since && el("span", { i18n: ["filterSince", { since }] }),
    until && el("span", { i18n: ["filterUntil", { until }] }),
  ].filter(Boolean);
  return limits.length ? el("p", { class: "filter-line" }, el("span", { i18n: "filterOnly" }), ...limits) : null;
}
