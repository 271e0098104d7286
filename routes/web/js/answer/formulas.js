/**
 * The formulas of an answer: `$a_b$`, `$$…$$`, `\(…\)` and `\[…\]`.
 *
 * Temml renders them as MathML, which browsers typeset with their own fonts. While Temml is missing or still
 * loading, and for input that it cannot parse, the formula's source is shown unchanged.
 */

import { el } from "../base/dom.js";

// A `$` is money unless a second one closely follows the formula: `$5 and $6` and `$HOME/bin:$PATH` are not math.
const DISPLAY = String.raw`\$\$[^$]{1,2000}\$\$|\\\[(?:(?!\\\])[^]){1,2000}\\\]`;
const INLINE = String.raw`\$(?![\s$])(?:[^$\n\\]|\\[^\n]){0,400}?(?:[^$\s\\]|\\[^\s])\$(?![\w$])|\\\((?:(?!\\\))[^]){1,400}\\\)`;
const AT_START = new RegExp(`^(?:${DISPLAY}|${INLINE})`);
export const FORMULAS = new RegExp(`${DISPLAY}|${INLINE}`, "g");
const BLOCK = new RegExp(`^ {0,3}(?:${DISPLAY})[ \t]*(?:\n+|$)`);

/** Inserted before the end of a formula that is still arriving. */
export const UNFINISHED = "\u200b";
const MARKED = "language-math"; // a class on <code>, the only marker that the sanitizer lets through

/** The marked extension for formulas; `escapeHtml` turns markup into text. */
export function formulaExtension(escapeHtml) {
  const write = ({ text }) => `<code class="${MARKED}">${escapeHtml(text)}</code>`;
  return {
    extensions: [
      { name: "math", level: "inline", start: mathStart, tokenizer: (src) => tokenOf(AT_START, src), renderer: write },
      { name: "mathBlock", level: "block", renderer: (token) => `<p>${write(token)}</p>\n`,
        tokenizer: (src) => named(tokenOf(BLOCK, src)) },
    ],
  };
}

function tokenOf(pattern, src) {
  const raw = pattern.exec(src)?.[0];
  return raw && { type: "math", raw, text: raw.trim() };
}

const named = (token) => token && { ...token, type: "mathBlock" };

function mathStart(src) {
  const at = src.search(/\$|\\[([]/);
  return at < 0 ? undefined : at;
}

/* Rendering */

const CACHE_SIZE = 300; // formulas cached, because a growing block is rendered again and again
const LIMITS = { maxExpand: 200, maxSize: [10, 100], throwOnError: true, trust: false, wrap: "tex" };
const CHINESE = /[\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]/;
const cache = new Map();
let temml = null;
let loading = null;

/** Replaces the extension's output in a fragment by formulas, and returns them. */
export function setFormulas(fragment) {
  return [...fragment.querySelectorAll(`:not(pre) > code.${MARKED}`)].map((code) => {
    const node = formula(code.textContent);
    code.replaceWith(node);
    return node;
  });
}

function formula(written) {
  if (written.includes(UNFINISHED)) return el("span", { class: "formula", text: written.replace(UNFINISHED, "") });
  const node = el("span", { class: "formula", "data-written": written, text: written });
  draw(node);
  return node;
}

function draw(node) {
  if (!temml) return load();
  const math = mathOf(node.dataset.written);
  if (math) node.replaceChildren(math);
}

/** Loads Temml when the first formula appears, then renders all formulas shown so far. */
function load() {
  loading ??= import("../../vendor/temml.mjs").then(
    ({ default: library }) => {
      temml = library;
      document.head.append(el("link", { rel: "stylesheet", href: new URL("../../vendor/temml.css", import.meta.url) }));
      for (const node of document.querySelectorAll(".formula[data-written]")) draw(node);
    },
    () => console.info("Wenmai: Temml is not installed; formulas are shown as written."),
  );
}

/** A copy of the cached formula; null if `written` is not a formula. */
function mathOf(written) {
  if (!cache.has(written)) {
    if (cache.size >= CACHE_SIZE) cache.delete(cache.keys().next().value);
    cache.set(written, newMath(written));
  }
  return cache.get(written)?.cloneNode(true) ?? null;
}

function newMath(written) {
  const mark = /^\$(?!\$)/.test(written) ? 1 : 2;
  const tex = written.slice(mark, -mark);
  if (mark === 1 && CHINESE.test(tex.replace(/\\text\w*\{[^{}]*\}/g, ""))) return null; // two prices and the text between them
  const holder = document.createElement("span");
  try {
    temml.render(tex, holder, { ...LIMITS, displayMode: /^(?:\$\$|\\\[)/.test(written) });
    return holder.firstElementChild;
  } catch {
    return null; // unsupported TeX
  }
}
