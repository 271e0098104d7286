/** A chunk's text with its key passage marked, its tables and its code drawn. */

import { el, shapeCells } from "../base/dom.js";

// Rows and code as the readers of documents write them. A chunk may begin in the midst of a table: then no head
// stands above; and end in the midst of its code.
const BLOCK = /(?:^[ \t]*\|.*\|[ \t]*(?:\n|$))+|^[ \t]*(`{3,})([^\n`]*)\n([^]*?)(?:^[ \t]*\1[ \t]*(?:\n|$)|$(?![^]))/gm;
const RULER = /^(?=.*-)[\s|:-]+$/;
const BAR = /(?<!\\)\|/g;

/**
 * Nodes for `text`. The passage is marked where the server says it stands; else where the same words stand
 * first; a passage that is no part of the text stands above it, marked.
 */
export function markedText({ text = "", key_passage: passage, passage_start: start }) {
  if (!passage) return drawn(text, 0, 0);
  const at = placeOf(text, passage, start);
  if (at < 0) return [el("mark", { class: "apart", text: passage }), ...drawn(text, 0, 0)];
  return drawn(text, at, at + passage.length);
}

/** Marked from `from` to `to`, in the cells of a table and in code too. */
function drawn(text, from, to) {
  const stretch = (start, end, words = (part) => part) => {
    const [first, last] = [from, to].map((at) => Math.min(Math.max(at, start), end));
    const mark = last > first && el("mark", { text: words(text.slice(first, last)) });
    return [words(text.slice(start, first)), mark, words(text.slice(last, end))].filter(Boolean);
  };
  const nodes = [];
  let at = 0;
  for (const block of text.matchAll(BLOCK)) {
    const { 0: rows, 1: fence, index } = block;
    nodes.push(...stretch(at, index), fence ? code(block, stretch) : table(rows, index, stretch));
    at = index + rows.length;
  }
  return [...nodes, ...stretch(at, text.length)];
}

/** What its fence says, such as the language and the lines, stands above it. */
function code({ 0: whole, 2: info, 3: lines, index }, stretch) {
  const start = index + whole.indexOf("\n") + 1;
  const words = el("code", {}, ...stretch(start, start + lines.trimEnd().length));
  return el("div", { class: "code" }, el("div", { class: "code-bar", text: info.trim() }), el("pre", { tabindex: 0 }, words));
}

/** `rows` stand at `at` in the text of which `stretch` gives the nodes from one place to another. */
function table(rows, at, stretch) {
  const lines = rows.split("\n");
  const hasHead = lines.length > 1 && RULER.test(lines[1]);
  const box = el("table", { class: "rows", tabindex: 0 }); // a wide one is scrolled with the keyboard
  for (const [number, line] of lines.entries()) {
    const tag = hasHead && number === 0 ? "th" : "td";
    const places = isRuler(line, number) ? [] : cellsOf(line);
    const cells = places.map(([start, end]) => el(tag, {}, ...stretch(at + start, at + end, unescaped)));
    if (cells.length) box.append(el("tr", {}, ...cells));
    at += line.length + 1;
  }
  shapeCells(box);
  return box;
}

/** Anywhere but below the first row, one dash in a cell is what the cell says. */
const isRuler = (line, number) => RULER.test(line) && (number === 1 || line.includes("---"));

const unescaped = (cell) => cell.replaceAll("\\|", "|");

/** Where the words of each cell begin and end in the line. */
function cellsOf(line) {
  const bars = [...line.matchAll(BAR)].map(({ index }) => index);
  return bars.slice(1).map((end, number) => {
    const cell = line.slice(bars[number] + 1, end);
    const start = bars[number] + 1 + cell.length - cell.trimStart().length;
    return [start, Math.max(start, bars[number] + 1 + cell.trimEnd().length)];
  });
}

// Marks of Markdown within a line that only make sense drawn: links, code, bold, those of a heading, and fences.
const MARKS = [
  [/!?\[([^[\]]{1,300})\]\([^()\s]{1,2000}\)/g, "$1"],
  [/(?<!`)(`{1,2})(?!`)([^`]{1,300})\1(?!`)/g, "$2"],
  [/\*\*(?=\S)([^*]{1,300})(?<=\S)\*\*/g, "$1"],
  [/^ {0,3}#{1,6}[ \t]+/, ""],
  [/^[ \t]*`{3,}[^`]*$/, ""],
];

/** For a glance: the words alone; the rows of a table with dots between their cells, without its ruler. */
export const atAGlance = (text = "") => text.split("\n").map(glanced).filter(Boolean).join("\n");

function glanced(row) {
  const line = MARKS.reduce((words, [mark, instead]) => words.replace(mark, instead), row);
  if (!line.trimStart().startsWith("|")) return line;
  if (RULER.test(line)) return "";
  return `${line.split("|").map((cell) => cell.trim()).filter(Boolean).join(" · ")};`;
}

/** Offsets count code points; a string of JavaScript counts some of them twice. */
function placeOf(text, passage, start) {
  const at = start == null ? -1 : Array.from(text).slice(0, start).join("").length;
  return at >= 0 && text.startsWith(passage, at) ? at : text.indexOf(passage);
}

/** A box that scrolls can be scrolled with the keyboard, and shows the marked passage first. */
export function settleScroll(box, target = box.querySelector("mark")) {
  if (box.scrollHeight <= box.clientHeight) return;
  box.tabIndex = 0;
  if (target) box.scrollTop += target.getBoundingClientRect().top - box.getBoundingClientRect().top - 40;
}
