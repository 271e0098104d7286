/** Decorates a rendered fragment: source buttons for `[1]`, formulas, and frames with a copy button for code. */

import { el, icon, setTitle, shapeCells } from "../base/dom.js";
import { setFormulas } from "./formulas.js";

// A line may break after a button or a formula, which would leave such a character alone on the next line.
const CLOSING = /[.,;:!?)\uff0c\u3002\u3001\uff1b\uff1a\uff01\uff1f\uff09\u300d\u201d]/;

/** `valid` is the set of source numbers, or null while the sources are not known yet. */
export function decorate(fragment, valid) {
  for (const formula of setFormulas(fragment)) attachPunctuation(formula);
  for (const text of citableTexts(fragment)) splitMarks(text, valid);
  for (const link of fragment.querySelectorAll("a:not([href])")) link.replaceWith(...link.childNodes); // rejected by the sanitizer
  showHosts(fragment);
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  for (const wide of fragment.querySelectorAll("pre, table")) wide.tabIndex = 0; // scrollable with the keyboard
  shapeCells(fragment);
  return fragment;
}

function attachPunctuation(formula) {
  const next = formula.nextSibling;
  if (next?.nodeType !== Node.TEXT_NODE || !CLOSING.test(next.data[0])) return;
  const held = el("span", { class: "held" });
  formula.replaceWith(held);
  held.append(formula, next.data[0]);
  next.data = next.data.slice(1);
}

function citableTexts(fragment) {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[[【(\uff08]/.test(node.data) && !node.parentElement?.closest("code, a, .formula")) texts.push(node);
  }
  return texts;
}

function splitMarks(text, valid) {
  const parts = [];
  let at = 0;
  for (const mark of findMarks(text.data, beginsLine(text))) {
    const buttons = buttonsFor(mark.list, valid);
    if (!buttons && !isInvalid(mark, valid)) continue;
    const before = text.data.slice(at, mark.at);
    const stop = buttons && CLOSING.test(text.data[mark.end] ?? "") ? text.data[mark.end] : "";
    at = mark.end + stop.length;
    parts.push(...(buttons ? cites(mark, before, buttons, stop) : [before, unsourced(mark.raw)]));
  }
  if (parts.length) text.replaceWith(...parts.filter((part) => part !== ""), text.data.slice(at));
}

function cites({ raw, list }, before, buttons, stop) {
  const lead = spacesAfter(before);
  return [before.slice(0, before.length - lead.length),
    el("span", { class: "cites", "data-mark": raw, "data-list": list }, lead, ...buttons, stop)];
}

/** Trailing spaces move into the citation's non-wrapping span, so that a line break cannot separate it from its word. */
const spacesAfter = (text) => text.slice(Math.max(text.trimEnd().length, text.lastIndexOf("\n") + 1));

const beginsLine = ({ previousSibling: before, parentElement: parent }) =>
  before ? before.nodeName === "BR" : !parent?.matches("em, strong, del");

/** A button per known source, plain text for other numbers; null if the citation names no known source. */
function buttonsFor(list, valid) {
  const numbers = numbersOf(list, valid);
  const known = (number) => !valid || valid.has(number);
  if (!numbers.some(known)) return null;
  return numbers.map((number) => (known(number) ? citeButton(number) : unsourced(`[${number}]`)));
}

/** Whether a citation names no known source and is not a footnote: [^9] is one of the model's own. */
const isInvalid = ({ raw, list }, valid) => !raw.startsWith("[^") && numbersOf(list, valid).length > 0;

/** A citation of a source that the model was never given. */
function unsourced(text) {
  const node = el("span", { class: "unsourced", text });
  setTitle(node, "citeUnknown");
  return node;
}

function citeButton(number) {
  return el("button", { class: "cite", type: "button", text: number, "data-index": number, label: ["cite", { n: number }] });
}

/** Called once the sources are known: a supposed citation that names none of them becomes text again. */
export function settleMarks(root, valid) {
  for (const span of root.querySelectorAll(".cites")) {
    const buttons = buttonsFor(span.dataset.list, valid);
    const [lead] = /^\s*/.exec(span.textContent);
    const last = span.textContent.at(-1);
    const stop = CLOSING.test(last) ? last : "";
    if (buttons) settleMark(span, lead, buttons, stop);
    else {
      const { parentNode: parent, dataset: { mark: raw, list } } = span;
      span.replaceWith(lead, isInvalid({ raw, list }, valid) ? unsourced(raw) : raw, stop);
      parent.normalize();
    }
  }
}

function settleMark(span, lead, buttons, stop) {
  const same = buttons.every((button) => button.matches(".cite")) && buttons.length === span.querySelectorAll(".cite").length;
  if (!same) span.replaceChildren(...[lead, ...buttons, stop].filter((part) => part !== ""));
  span.normalize();
}

function frameCode(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  const copy = el("button", { class: "quiet copy-code", type: "button", label: "copyCode" }, icon("copy"));
  const frame = el("div", { class: "code" }, el("div", { class: "code-bar" }, el("span", { text: language }), copy));
  pre.replaceWith(frame);
  frame.append(pre);
}

/* Shows a link's host when its text suggests another one: "https://bank.example" leading to evil.test. */

// Text that looks like an address: with a scheme or www, or consisting only of a name with a dot in it.
const ADDRESS = /(?:\b[a-z][a-z+.-]*:\/\/|\bwww\.)\S+|^\s*[^\s/]+\.[^\s/.]{2,}(?:[/?#:]\S*)?\s*$/giu;

function showHosts(fragment) {
  for (const link of fragment.querySelectorAll("a[href]")) {
    const { protocol, hostname: host } = link;
    if (link.textContent === link.getAttribute("href")) link.classList.add("bare"); // not printed twice
    if (protocol === ":") link.replaceWith(...link.childNodes); // an incomplete address leads nowhere
    else if (host && isMisleading(link, host)) link.after(el("bdi", { class: "faint", text: ` (${host})` }));
  }
}

/** Also true for a user name before an @, and for look-alike letters of other scripts. */
function isMisleading({ textContent: text, username }, host) {
  return Boolean(username) || host.includes("xn--") || (text.match(ADDRESS) ?? []).some((named) => hostOf(named) !== host);
}

function hostOf(text) {
  try {
    return new URL(text.includes("://") ? text.trim() : `http://${text.trim()}`).hostname.replace(/[.,;:!?)]+$/, "");
  } catch {
    return "";
  }
}

/* Citations, in the forms that the server recognizes: [1], [1, 2], [1-3], 【1】, [^1], (来源 1). */

const NUMBERS = String.raw`\d{1,3}(?:\s{0,3}(?:[,\uff0c\u3001;\uff1b]|[-\u2013\u2014~\uff5e\u81f3]|和|与|and)\s{0,3}\^?\d{1,3}){0,20}`;
const LABEL = String.raw`(?:(?:参?见|參?見|see)\s{0,3})?(?:来源|來源|资料块?|資料|sources?|passages?)\s{0,3}[:\uff1a#]?\s{0,3}`;
const MARK = new RegExp(String.raw`(?:(?:\[\^?|【)|(?<label>[(\uff08\[【]\s?${LABEL}))(?<list>${NUMBERS})\s?[\]】)\uff09]`, "gi");
const RANGE = /(\d{1,3})\s*[-\u2013\u2014~\uff5e\u81f3]\s*\^?(\d{1,3})|(\d{1,3})/g;
// x[1], items_2[1], myList[1], f()[1]: an index, not a citation
const INDEXED = /(?:(?<!\w)(?:[A-Za-z_]|[a-z][A-Za-z0-9_]*[A-Z0-9_][A-Za-z0-9_]*|arr|array|list|args|argv|nums|vec|buf)|\(\)|:\/\/\S*)$/;
const LOOK_BACK = 80;
const MAX_UNKNOWN_RANGE = 30; // a range up to this wide is accepted while the sources are unknown

/**
 * `begins`: whether the text starts a line (it may also follow an element).
 * @returns {{at: number, end: number, raw: string, list: string}[]} the citations in the text, in order
 */
function findMarks(text, begins) {
  const marks = [];
  for (const match of text.matchAll(MARK)) {
    const [raw] = match;
    const { label, list } = match.groups;
    const end = match.index + raw.length;
    if (label || standsAlone(text, match.index, end, { lastEnd: marks.at(-1)?.end, begins })) marks.push({ at: match.index, end, raw, list });
  }
  return marks;
}

function standsAlone(text, at, end, { lastEnd, begins }) {
  if (/[)\uff09]/.test(text[end - 1]) || text[end] === "(") return false;
  const line = text.lastIndexOf("\n", at - 1) + 1;
  const before = text.slice(Math.max(line, at - LOOK_BACK), at);
  if (text[end] === ":" && !before.trim() && (line > 0 || begins)) return false; // a definition
  if (at === lastEnd || !before) return true;
  return !/[\\\]!]$/.test(before) && !INDEXED.test(before);
}

/** The distinct source numbers that a citation names. `valid` is the set of known numbers, or null while unknown. */
function numbersOf(list, valid) {
  const numbers = new Set();
  for (const [, first, last, single] of list.matchAll(RANGE)) {
    if (single) numbers.add(Number(single));
    else for (const number of expandRange(Number(first), Number(last), valid)) numbers.add(number);
  }
  return numbers.has(0) ? [] : [...numbers];
}

/** A range that exceeds the known sources is not a citation. */
function expandRange(first, last, valid) {
  const fits = valid ? valid.has(first) && valid.has(last) : last - first < MAX_UNKNOWN_RANGE;
  return first >= 1 && first < last && fits ? Array.from({ length: last - first + 1 }, (_, at) => first + at) : [];
}
