/**
 * The block that still grows, as it may be shown: what is only half there does not flash as raw markup.
 *
 * A mark that means nothing yet is held back, an open one is closed. The finished block is rendered from its
 * own text, so nothing of this is left in the end.
 */
import { MATHS, UNFINISHED } from "./formulas.js";

const BARE_MARK = /^[ \t>]*(?:[-+*=#]{1,6}|\d{1,3}[.)]?|`{1,2}|`{3,}[^`]*|~{1,2}|~{3,}.*|:?-+:?)?[ \t]*$/;
const TABLE_BEGUN = /^ {0,3}\|[^\n]*(?:\n[ \t]*[|:\- \t]*)?$/;
const HALF_LINK = /!?\[([^[\]\n]{0,300})\](?:\([^()\n]{0,2000})?$/;
const HALF_MARK = /[[【]\^?[\d,\uff0c\u3001\s-]{0,20}$/;
const HALF_LABEL = /!?\[([^[\]\n]{0,300})$/;
const HALF_FORMULA = /(?:\\[([]?|\$\$?)$/;
const OPEN_FORMULA = /(?:(?:^|\n)[ \t]*(\$\$)|(\\[([]))(?:(?!\$\$|\\[()[\]])[^]){0,1000}$/; // within a line, $$ is no maths yet
const ENDS = { "$$": "$$", "\\(": "\\)", "\\[": "\\]" };
const NUMBER = /^\^?[\d,\uff0c\u3001;\s~\u2013-]+$/;

/** `open` is the growing block, `inCode` whether it is a fenced code block. */
export function previewOf(open, inCode) {
  if (inCode) return open.replace(/\n {0,3}[`~]+$/, "\n");
  const table = tableBegun(open);
  if (table) return table;
  const last = open.lastIndexOf("\n") + 1;
  const shown = BARE_MARK.test(open.slice(last)) ? open.slice(0, last) : open;
  const formula = formulaEnd(shown);
  if (formula && HALF_FORMULA.test(shown)) return previewOf(shown.replace(HALF_FORMULA, ""), inCode);
  if (formula) return shown + UNFINISHED + formula;
  if (shown !== open) return shown.trimEnd() && shown;
  const start = paragraphStart(open);
  return open.slice(0, start) + closed(open.slice(start));
}

/** What ends the formula that is still open; "" where none is. */
function formulaEnd(open) {
  const rest = open.replace(/`+[^`]*(?:`+|$)/g, "").replace(MATHS, "");
  const [, display, other] = OPEN_FORMULA.exec(rest) ?? [];
  return ENDS[display ?? other] ?? "";
}

/** A table's head, shown as a table before the line below it is there. */
function tableBegun(open) {
  if (!TABLE_BEGUN.test(open)) return "";
  const head = open.split("\n", 1)[0].trim();
  const row = head.length > 1 && /[^\\]\|$/.test(head) ? head : `${head} |`;
  const cells = row.replaceAll("\\|", "").split("|").length - 2;
  return cells < 1 ? " " : `${row}\n|${" --- |".repeat(cells)}\n`;
}

/** Where the last stretch begins in which an open mark can be closed. */
function paragraphStart(open) {
  const blank = open.lastIndexOf("\n\n") + 1;
  const item = open.slice(blank).search(/\n[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t][^\n]*$/);
  const row = open.slice(blank).search(/\n[ \t]*\|[^\n]*$/);
  return blank + Math.max(item, row, -1) + 1;
}

function closed(text) {
  const bare = text.replace(/[*_~`]+$/, "");
  const code = (bare.match(/`+/g) ?? []).length % 2;
  if (code) return bare.endsWith("`") ? bare : `${bare}\``;
  return closeEmphasis(withoutHalfLink(bare));
}

function withoutHalfLink(text) {
  if (HALF_MARK.test(text)) return text.replace(HALF_MARK, "");
  const half = HALF_LINK.exec(text);
  if (half && (half[0].includes("](") || !NUMBER.test(half[1]))) return text.slice(0, half.index) + half[1];
  return half ? text : text.replace(HALF_LABEL, "$1");
}

/** Innermost first. An asterisk that begins an item or stands between blanks opens nothing. */
function closeEmphasis(text) {
  const plain = text.replace(/`+[^`]*`+|\\[^]|\$[^$\n]*\$/g, "").replace(/^[ \t]*[*+-][ \t]/gm, "");
  const strong = (plain.match(/\*\*/g) ?? []).length % 2;
  const alone = plain.replaceAll("**", "").match(/\S\*|\*\S/g) ?? [];
  const single = alone.length % 2 === 1 && /(?:^|[^\w*])\*(?![\s*])[^*]*$/.test(plain.replaceAll("**", ""));
  const struck = (plain.match(/~~/g) ?? []).length % 2;
  const marks = (single ? "*" : "") + (strong ? "**" : "") + (struck ? "~~" : "");
  return marks ? text.trimEnd() + marks : text;
}
