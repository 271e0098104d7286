/**
 * `**bold**` and `~~struck~~` beside Chinese, Japanese and Korean characters, which stand without blanks.
 *
 * CommonMark takes a mark between punctuation and a letter for the one side of a word only: in
 * `**注意：**请`, the end would be none. Beside such a character a mark can be both, as in the amendment
 * that its issue 650 asks for (github.com/tats-u/markdown-cjk-friendly); the share page has the same rule. A
 * single asterisk stays as it was, for `基数*（1+比例）*月数` is a product, and a single tilde is a range: `3~5年`.
 */

const EASTERN = String.raw`[\u1100-\u11ff\u2e80-\u2fff\u3001-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uffee\u{20000}-\u{3ffff}]`;
const MARK = String.raw`(?:\*\*+|~~)`;
const SIGN = String.raw`(?![*~])[\p{P}\p{S}]`;
// what stands beside a mark, and is for that mark like a letter
const AS_LETTER = new RegExp(
  `${EASTERN}(?=${MARK})|(?<=${MARK})${EASTERN}|${SIGN}(?=${MARK}${EASTERN})|(?<=${EASTERN}${MARK})${SIGN}`, "gu");
const ENDS_EASTERN = new RegExp(`${EASTERN}$`, "u");
const BEGINS_EASTERN = new RegExp(`^${MARK}${EASTERN}`, "u");

/** Where marks are looked for, as marked wants it: as long as `src`. */
export const emphasisMask = (src) => src.replace(AS_LETTER, (char) => "a".repeat(char.length));

/** For marked, with its own `Tokenizer`. */
export const emphasisTokenizer = ({ prototype: { emStrong, del } }) => ({
  emStrong(src, mask, before) {
    return src.startsWith("**") && emStrong.call(this, src, mask, openable(src, before));
  },
  del(src, mask, before) {
    return /^~~(?!~)/.test(src) ? del.call(this, src, mask, openable(src, before)) : undefined;
  },
});

/** The character before a mark, or none where the mark may open in front of anything. */
const openable = (src, before) => (ENDS_EASTERN.test(before) || BEGINS_EASTERN.test(src) ? "" : before);
