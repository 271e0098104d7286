/**
 * Prepares the growing block for display, so that incomplete syntax does not flash as raw markup.
 *
 * An incomplete delimiter is held back, an open one is closed. The finished block is rendered from its own text,
 * so the preview leaves no trace.
 */
import { FORMULAS, UNFINISHED } from "./formulas.js";

const BARE_MARK = /^[ \t>]*(?:[-+*=#]{1,6}|\d{1,3}[.)]?|`{1,2}|`{3,}[^`]*|~{1,2}|~{3,}.*|:?-+:?)?[ \t]*$/;
const TABLE_BEGUN = /^ {0,3}\|[^\n]*(?:\n[ \t]*[|:\- \t]*)?$/;
const HALF_LINK = /!?\[([^[\]\n]{0,300})\](?:\([^()\n]{0,2000})?$/;
const HALF_MARK = /[[【]\^?[\d,\uff0c\u3001\s-]{0,20}$/;
const HALF_LABEL = /!?\[([^[\]\n]{0,300})$/;
const HALF_FORMULA = /(?:\\[([]?|\$\$?)$/;
const OPEN_FORMULA = /(?:(?:^|\n)[ \t]*(\$\$)|(\\[([]))(?:(?!\$\$|\\[()[\]])[^]){0,1000}$/; // $$ within a line is not math yet
const ENDS = { "$$": "$$", "\\(": "\\)", "\\[": "\\]" };
const NUMBER = /^\^?[\d,\uff0c\u3001;\s~\u2013-]+$/;

/** `open` is the growing block; `inCode` says whether it is a fenced code block. */
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

/** The delimiter that would close the open formula; "" if none is open. */
function formulaEnd(open) {
  const rest = open.replace(/`+[^`]*(?:`+|$)/g, "").replace(FORMULAS, "");
  const [, display, other] = OPEN_FORMULA.exec(rest) ?? [];
  return ENDS[display ?? other] ?? "";
}

/** A table header, shown as a table before its delimiter row has arrived. */
function tableBegun(open) {
  if (!TABLE_BEGUN.test(open)) return "";
  const head = open.split("\n", 1)[0].trim();
  const row = head.length > 1 && /[^\\]\|$/.test(head) ? head : `${head} |`;
  const cells = row.replaceAll("\\|", "").split("|").length - 2;
  return cells < 1 ? " " : `${row}\n|${" --- |".repeat(cells)}\n`;
}

/** The start of the last section in which an open delimiter can be closed. */
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

/** Closes the innermost emphasis first. An asterisk that starts a list item or has spaces on both sides opens none. */
function closeEmphasis(text) {
  const plain = text.replace(/`+[^`]*`+|\\[^]|\$[^$\n]*\$/g, "").replace(/^[ \t]*[*+-][ \t]/gm, "");
  const strong = (plain.match(/\*\*/g) ?? []).length % 2;
  const alone = plain.replaceAll("**", "").match(/\S\*|\*\S/g) ?? [];
  const single = alone.length % 2 === 1 && /(?:^|[^\w*])\*(?![\s*])[^*]*$/.test(plain.replaceAll("**", ""));
  const struck = (plain.match(/~~/g) ?? []).length % 2;
  const marks = (single ? "*" : "") + (strong ? "**" : "") + (struck ? "~~" : "");
  return marks ? text.trimEnd() + marks : text;
}
