/** The page's words in Chinese and English, and switching between them without a reload. */

import { en, zh } from "./words.js";
import { writePref } from "./prefs.js";

export const language = () => (document.documentElement.lang.startsWith("zh") ? "zh" : "en");

export const hasWords = (key) => Object.hasOwn(zh, key);

/** The words for a key, or the text itself when it is no key. */
export function t(key, vars = {}) {
  const words = language() === "zh" ? zh : en;
  if (!hasWords(key)) return key; // the server's own sentence, say
  return words[key].replace(/\{(\w+)\}/g, (_, name) => vars[name] ?? "");
}

const parse = (vars) => (vars ? JSON.parse(vars) : undefined);

/** Writes the words into one element, from the keys in its data attributes. */
export function translate(node) {
  const { i18n, i18nVars, i18nLabel, i18nLabelVars, i18nPlaceholder } = node.dataset;
  if (i18n) node.textContent = t(i18n, parse(i18nVars));
  if (i18nPlaceholder) node.placeholder = t(i18nPlaceholder);
  if (!i18nLabel) return;
  const label = t(i18nLabel, parse(i18nLabelVars));
  node.setAttribute("aria-label", label);
  if (node.matches("button, select")) node.title = label;
}

export function translateAll() {
  for (const node of document.querySelectorAll("[data-i18n], [data-i18n-label], [data-i18n-placeholder]")) {
    translate(node);
  }
}

export function toggleLanguage() {
  const next = language() === "zh" ? "en" : "zh";
  document.documentElement.lang = next === "zh" ? "zh-CN" : "en";
  writePref("lang", next);
  translateAll();
}

/** A stored RFC 3339 time as a person of this language reads it. */
export function formatTime(timestamp) {
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
}

/** Whole days between that time and now, by the calendar: 0 is today. */
export function daysAgo(timestamp) {
  const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  return Math.round((midnight(new Date()) - midnight(new Date(timestamp))) / 86_400_000);
}
