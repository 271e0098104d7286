/** The marks by which an answer names its sources, as the server counts them: [1], [1, 2], [1-3], 【1】, [^1], (来源 1). */

const NUMBERS = String.raw`\d{1,3}(?:\s{0,3}(?:[,\uff0c\u3001;\uff1b]|[-\u2013\u2014~\uff5e\u81f3]|和|与|and)\s{0,3}\^?\d{1,3}){0,20}`;
const LABEL = String.raw`(?:(?:参?见|參?見|see)\s{0,3})?(?:来源|來源|资料块?|資料|sources?|passages?)\s{0,3}[:\uff1a#]?\s{0,3}`;
const MARK = new RegExp(String.raw`(?:(?:\[\^?|【)|(?<label>[(\uff08\[【]\s?${LABEL}))(?<list>${NUMBERS})\s?[\]】)\uff09]`, "gi");
const RANGE = /(\d{1,3})\s*[-\u2013\u2014~\uff5e\u81f3]\s*\^?(\d{1,3})|(\d{1,3})/g;
// x[1], items_2[1], myList[1], f()[1]: an index, no mark
const INDEXED = /(?:(?<!\w)(?:[A-Za-z_]|[a-z][A-Za-z0-9_]*[A-Z0-9_][A-Za-z0-9_]*|arr|array|list|args|argv|nums|vec|buf)|\(\)|:\/\/\S*)$/;
const LOOK_BACK = 80;
const WIDEST_UNKNOWN = 30; // a range this wide is believed while the sources are not known

/**
 * `begins`: the text stands at the beginning of a line; it may follow an element.
 * @returns {{at: number, end: number, raw: string, list: string}[]} the marks in a text, in order
 */
export function findMarks(text, begins) {
  const found = [];
  for (const match of text.matchAll(MARK)) {
    const [raw] = match;
    const { label, list } = match.groups;
    const end = match.index + raw.length;
    if (label || standsAlone(text, match.index, end, { lastEnd: found.at(-1)?.end, begins })) found.push({ at: match.index, end, raw, list });
  }
  return found;
}

function standsAlone(text, at, end, { lastEnd, begins }) {
  if (/[)\uff09]/.test(text[end - 1]) || text[end] === "(") return false;
  const line = text.lastIndexOf("\n", at - 1) + 1;
  const before = text.slice(Math.max(line, at - LOOK_BACK), at);
  if (text[end] === ":" && !before.trim() && (line > 0 || begins)) return false; // a definition
  if (at === lastEnd || !before) return true;
  return !/[\\\]!]$/.test(before) && !INDEXED.test(before);
}

/** The source numbers a mark names, each once. `valid` is the set there is, or null while it is not known. */
export function numbersOf(list, valid) {
  const found = new Set();
  for (const [, first, last, single] of list.matchAll(RANGE)) {
    if (single) found.add(Number(single));
    else for (const number of wholeRange(Number(first), Number(last), valid)) found.add(number);
  }
  return found.has(0) ? [] : [...found];
}

/** A range that leaves the sources is none of ours. */
function wholeRange(first, last, valid) {
  const fits = valid ? valid.has(first) && valid.has(last) : last - first < WIDEST_UNKNOWN;
  return first >= 1 && first < last && fits ? Array.from({ length: last - first + 1 }, (_, at) => first + at) : [];
}
