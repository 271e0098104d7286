/** Writing into the question box as if a person had typed it, so that undo takes it back. */

/** Replaces what is selected; tells the box's listeners. */
export function insertText(box, text) {
  box.focus();
  if (document.activeElement === box && document.execCommand("insertText", false, text)) return;
  box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
  box.dispatchEvent(new InputEvent("input", { bubbles: true, inputType: "insertText", data: text }));
}

/** How many characters the server counts: code points, not UTF-16 units. */
export const countChars = (text) => text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);

/** The first `most` of them. */
export const firstChars = (text, most) => (text.length <= most ? text : Array.from(text.slice(0, most * 2)).slice(0, most).join(""));

/** For a name at the head of a quote. */
export const oneLine = (name) => name.replace(/\s+/g, " ").trim();

/**
 * Puts a passage at the caret as dialogue, below or after `lead`, on lines of its own, as far as `max` characters
 * allow. Gives how many characters of it were put there, and how many there were.
 */
export function insertQuote(box, lead, text, max) {
  const before = box.value.slice(0, box.selectionStart);
  const after = box.value.slice(box.selectionEnd);
  const head = (before && !before.endsWith("\n") ? "\n" : "") + lead;
  const tail = after.startsWith("\n") ? "" : "\n";
  const room = max - countChars(before + head + tail + after);
  const passage = (text ?? "").trim();
  const put = firstChars(passage, Math.max(0, room));
  if (put) insertText(box, head + put + tail);
  return { put: countChars(put), of: countChars(passage) };
}
