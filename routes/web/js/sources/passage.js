/** Renders a chunk's text with its key passage highlighted, and its tables and code formatted. */

import { el, shapeCells } from "../base/dom.js";

// Table rows and code as the document readers write them. A chunk may start inside a table, without a header, and may
// end inside a code block.
const BLOCK = /(?:^[ \t]*\|.*\|[ \t]*(?:\n|$))+|^[ \t]*(`{3,})([^\n`]*)\n([^]*?)(?:^[ \t]*\1[ \t]*(?:\n|$)|$(?![^]))/gm;
const RULER = /^(?=.*-)[\s|:-]+$/;
const BAR = /(?<!\\)\|/g;

/**
 * Returns nodes for `text`. The passage is highlighted at the server's offset, else at its first occurrence; if it is
 * not in the text, it is shown above it.
 */
export function markedText({ text = "", key_passage: passage, passage_start: start }) {
  if (!passage) return rendered(text, 0, 0);
  const at = placeOf(text, passage, start);
  if (at < 0) return [el("mark", { class: "apart", text: passage }), ...rendered(text, 0, 0)];
  return rendered(text, at, at + passage.length);
}

/** Highlights the range from `from` to `to`, also inside table cells and code. */
function rendered(text, from, to) {
  const range = (start, end, words = (part) => part) => {
    const [first, last] = [from, to].map((at) => Math.min(Math.max(at, start), end));
    const mark = last > first && el("mark", { text: words(text.slice(first, last)) });
    return [words(text.slice(start, first)), mark, words(text.slice(last, end))].filter(Boolean);
  };
  const nodes = [];
  let at = 0;
  for (const block of text.matchAll(BLOCK)) {
    const { 0: rows, 1: fence, index } = block;
    nodes.push(...range(at, index), fence ? code(block, range) : table(rows, index, range));
    at = index + rows.length;
  }
  return [...nodes, ...range(at, text.length)];
}

/** A code block under a bar with the fence's info string, such as the language and line numbers. */
function code({ 0: whole, 2: info, 3: lines, index }, range) {
  const start = index + whole.indexOf("\n") + 1;
  const words = el("code", {}, ...range(start, start + lines.trimEnd().length));
  return el("div", { class: "code" }, el("div", { class: "code-bar", text: info.trim() }), el("pre", { tabindex: 0 }, words));
}

/** `rows` start at offset `at` of the text; `range` returns the nodes between two offsets of it. */
function table(rows, at, range) {
  const lines = rows.split("\n");
  const hasHead = lines.length > 1 && RULER.test(lines[1]);
  const box = el("table", { class: "rows", tabindex: 0 }); // so that a wide one can be scrolled with the keyboard
  for (const [number, line] of lines.entries()) {
    const tag = hasHead && number === 0 ? "th" : "td";
    const places = isRuler(line, number) ? [] : cellsOf(line);
    const cells = places.map(([start, end]) => el(tag, {}, ...range(at + start, at + end, unescaped)));
    if (cells.length) box.append(el("tr", {}, ...cells));
    at += line.length + 1;
  }
  shapeCells(box);
  return box;
}

/** Except below the first row, a single dash is a cell's content, not a delimiter row. */
const isRuler = (line, number) => RULER.test(line) && (number === 1 || line.includes("---"));

const unescaped = (cell) => cell.replaceAll("\\|", "|");

/** The start and end of each cell's text in the line. */
function cellsOf(line) {
  const bars = [...line.matchAll(BAR)].map(({ index }) => index);
  return bars.slice(1).map((end, number) => {
    const cell = line.slice(bars[number] + 1, end);
    const start = bars[number] + 1 + cell.length - cell.trimStart().length;
    return [start, Math.max(start, bars[number] + 1 + cell.trimEnd().length)];
  });
}

// Inline Markdown syntax to strip for a plain preview: links, code, bold, headings and fences.
const MARKS = [
  [/!?\[([^[\]]{1,300})\]\([^()\s]{1,2000}\)/g, "$1"],
  [/(?<!`)(`{1,2})(?!`)([^`]{1,300})\1(?!`)/g, "$2"],
  [/\*\*(?=\S)([^*]{1,300})(?<=\S)\*\*/g, "$1"],
  [/^ {0,3}#{1,6}[ \t]+/, ""],
  [/^[ \t]*`{3,}[^`]*$/, ""],
];

/** A plain preview: text without syntax; table cells are separated by dots, delimiter rows are left out. */
export const plainPreview = (text = "") => text.split("\n").map(plainLine).filter(Boolean).join("\n");

function plainLine(row) {
  const line = MARKS.reduce((words, [mark, instead]) => words.replace(mark, instead), row);
  if (!line.trimStart().startsWith("|")) return line;
  if (RULER.test(line)) return "";
  return `${line.split("|").map((cell) => cell.trim()).filter(Boolean).join(" · ")};`;
}

/** The server's offsets count code points, JavaScript strings UTF-16 units. */
function placeOf(text, passage, start) {
  const at = start == null ? -1 : Array.from(text).slice(0, start).join("").length;
  return at >= 0 && text.startsWith(passage, at) ? at : text.indexOf(passage);
}

/** Makes a scrolling box scrollable with the keyboard and scrolls it to the highlighted passage. */
export function settleScroll(box, target = box.querySelector("mark")) {
  if (box.scrollHeight <= box.clientHeight) return;
  box.tabIndex = 0;
  if (target) box.scrollTop += target.getBoundingClientRect().top - box.getBoundingClientRect().top - 40;
}
