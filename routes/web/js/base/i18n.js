/** The page's texts in Chinese and English, and switching between them without a reload. */

import { en, zh } from "../words/index.js";
import { publish } from "./bus.js";
import { writePref } from "./prefs.js";

export const language = () => (document.documentElement.lang.startsWith("zh") ? "zh" : "en");

// Bidi control characters: inside a name they would reorder the sentence around it.
const BIDI_CONTROLS = /[\u202a-\u202e\u2066-\u2069]/g;

const UNITS = ["B", "KB", "MB", "GB"];

export const hasWords = (key) => Object.hasOwn(zh, key);

const plurals = { zh: new Intl.PluralRules("zh"), en: new Intl.PluralRules("en") };

/** A text that depends on a count is {one, other}, optionally {zero}; the count is `n` or the variable named by `by`. */
function pluralForm(words, vars) {
  if (typeof words === "string") return words;
  const n = vars[words.by ?? "n"];
  return (n === 0 && words.zero) || (words[plurals[language()].select(Number(n))] ?? words.other);
}

/** The text for a key; anything that is not a key is returned unchanged. */
export function t(key, vars = {}) {
  const words = language() === "zh" ? zh : en;
  if (!hasWords(key)) return key; // for example the server's own sentence
  return pluralForm(words[key], vars).replace(/\{(\w+)\}/g, (_, name) => String(vars[name] ?? "").replace(BIDI_CONTROLS, ""));
}

const parse = (vars) => (vars ? JSON.parse(vars) : undefined);

/** Updates one element's texts from the keys in its data attributes. */
export function translate(node) {
  const { i18n, i18nVars, i18nLabel, i18nLabelVars, i18nPlaceholder, i18nTitle, moment } = node.dataset;
  if (i18n) node.textContent = t(i18n, parse(i18nVars));
  if (moment) node.textContent = formatTime(moment);
  if (i18nPlaceholder) node.placeholder = t(i18nPlaceholder);
  if (i18nTitle) node.title = t(i18nTitle);
  if (!i18nLabel) return;
  const label = t(i18nLabel, parse(i18nLabelVars));
  node.setAttribute("aria-label", label);
  if (node.matches("button, select")) node.title = label;
}

export function translateAll() {
  for (const node of document.querySelectorAll("[data-i18n], [data-i18n-label], [data-i18n-placeholder], [data-i18n-title], [data-moment]")) {
    translate(node);
  }
  delete document.documentElement.dataset.words; // boot.js hid the texts of the other language
}

export function toggleLanguage() {
  const next = language() === "zh" ? "en" : "zh";
  document.documentElement.lang = next === "zh" ? "zh-CN" : "en";
  writePref("lang", next);
  translateAll();
  for (const node of document.querySelectorAll(".offscreen[role=status]")) node.textContent = ""; // announced in the other language
  publish("language");
}

/** 1 KB is 1,000 bytes, as in the server's limits. */
export function formatBytes(bytes) {
  const step = Math.min(UNITS.length - 1, bytes < 1 ? 0 : Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** step;
  return `${value.toFixed(step && value < 10 ? 1 : 0)} ${UNITS[step]}`;
}

/** Formats every duration, so that a part never reads longer than the whole and a nonzero duration never as 0.0. */
export const seconds = (ms) => ((ms > 0 ? Math.max(ms, 50) : 0) / 1000).toFixed(1);

/** Formats a stored RFC 3339 time for the current language. */
export function formatTime(timestamp) {
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
}

export function formatDay(date) {
  return date.toLocaleDateString(document.documentElement.lang, { dateStyle: "medium" });
}

/** "2026年10月", "October 2026". */
export function formatMonth(timestamp) {
  return new Date(timestamp).toLocaleDateString(document.documentElement.lang, { year: "numeric", month: "long" });
}

/** Calendar days between that time and now; 0 is today. */
export function daysAgo(timestamp) {
  const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  return Math.round((midnight(new Date()) - midnight(new Date(timestamp))) / 86_400_000);
}

/** The local time of day, for "retrying at 14:05:10". */
export function formatClock(moment) {
  const date = new Date(moment ?? "");
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString(document.documentElement.lang);
}

/* Texts for server errors: by code, or by the class of the HTTP status if there is no code. */

/** The code that has a text on the page: `code` itself, that of its status class, or "" if neither has one. */
export function wordedCode(code) {
  if (hasWords(`cause_${code}`)) return code;
  const [, kind] = /^http_([45])\d\d$/.exec(code) ?? [];
  return kind ? `http_${kind}xx` : "";
}

/** The cause of an ApiError, as a text key or as the server's own sentence. */
export function causeOf({ code, status, message }) {
  const known = wordedCode(code || `http_${status}`);
  return known ? `cause_${known}` : message;
}
