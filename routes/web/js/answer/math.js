/**
 * Maths in an answer is shown as it was written: `$a_b$`, `$$…$$`, `\(…\)` and `\[…\]` keep every character.
 *
 * A `$` is money unless a partner stands close behind the formula: `$5 and $6` is no maths.
 */
const DISPLAY = String.raw`\$\$[^$]{1,2000}\$\$|\\\[(?:(?!\\\])[^]){1,2000}\\\]`;
const INLINE = String.raw`\$(?![\s$])(?:[^$\n\\]|\\[^\n]){0,400}?(?:[^$\s\\]|\\[^\s])\$(?![\d$])|\\\((?:(?!\\\))[^]){1,400}\\\)`;
const AT_START = new RegExp(`^(?:${DISPLAY}|${INLINE})`);
const ANYWHERE = new RegExp(`${DISPLAY}|${INLINE}`, "g");
const BLOCK = new RegExp(`^ {0,3}(?:${DISPLAY})[ \t]*(?:\n+|$)`);

function tokenOf(pattern, src) {
  const raw = pattern.exec(src)?.[0];
  return raw && { type: "math", raw, text: raw.trim() };
}

/** `escapeHtml` makes text of markup. What marked needs to know about maths. */
export function mathExtension(escapeHtml) {
  const write = ({ text }) => escapeHtml(text).replaceAll("\n", "<br>");
  return {
    extensions: [
      { name: "math", level: "inline", start: mathStart, tokenizer: (src) => tokenOf(AT_START, src), renderer: write },
      { name: "mathBlock", level: "block", renderer: (token) => `<p>${write(token)}</p>\n`,
        tokenizer: (src) => named(tokenOf(BLOCK, src)) },
    ],
    // an asterisk inside a formula ends no emphasis that began before it
    hooks: { emStrongMask: (src) => src.replace(ANYWHERE, (raw) => "a".repeat(raw.length)) },
  };
}

const named = (token) => token && { ...token, type: "mathBlock" };

function mathStart(src) {
  const at = src.search(/\$|\\[([]/);
  return at < 0 ? undefined : at;
}
