/**
 * `**bold**` and `~~struck~~` next to Chinese, Japanese and Korean characters, which are written without spaces.
 *
 * In CommonMark, a delimiter between punctuation and a letter can only open or only close: in `**注意：**请`
 * the second one would not close. Next to a CJK character it can do both here, as proposed in CommonMark's issue
 * 650 (github.com/tats-u/markdown-cjk-friendly); the share page has the same rule. Single delimiters are
 * unchanged, because `基数*（1+比例）*月数` is a product and `3~5年` a range.
 */

const EASTERN = String.raw`[\u1100-\u11ff\u2e80-\u2fff\u3001-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uffee\u{20000}-\u{3ffff}]`;
const MARK = String.raw`(?:\*\*+|~~)`;
const SIGN = String.raw`(?![*~])[\p{P}\p{S}]`;
// characters next to a delimiter that count as letters for it
const AS_LETTER = new RegExp(
  `${EASTERN}(?=${MARK})|(?<=${MARK})${EASTERN}|${SIGN}(?=${MARK}${EASTERN})|(?<=${EASTERN}${MARK})${SIGN}`, "gu");
const ENDS_EASTERN = new RegExp(`${EASTERN}$`, "u");
const BEGINS_EASTERN = new RegExp(`^${MARK}${EASTERN}`, "u");

/** The text in which marked looks for delimiters; it must be as long as `src`. */
export const emphasisMask = (src) => src.replace(AS_LETTER, (char) => "a".repeat(char.length));

/** Extends marked's own `Tokenizer`. */
export const emphasisTokenizer = ({ prototype: { emStrong, del } }) => ({
  emStrong(src, mask, before) {
    return src.startsWith("**") && emStrong.call(this, src, mask, openable(src, before));
  },
  del(src, mask, before) {
    return /^~~(?!~)/.test(src) ? del.call(this, src, mask, openable(src, before)) : undefined;
  },
});

/** The character before a delimiter, or "" if the delimiter may open regardless of it. */
const openable = (src, before) => (ENDS_EASTERN.test(before) || BEGINS_EASTERN.test(src) ? "" : before);
