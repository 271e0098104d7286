/** Inserts text into the question box as if it had been typed, so that it can be undone. */

/** Replaces the selection and fires an input event. */
export function insertText(box, text) {
  box.focus();
  if (document.activeElement === box && document.execCommand("insertText", false, text)) return;
  box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
  box.dispatchEvent(new InputEvent("input", { bubbles: true, inputType: "insertText", data: text }));
}

/** The length as the server counts it: in code points, not UTF-16 units. */
export const countChars = (text) => text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);

/** The first `most` code points. */
export const firstChars = (text, most) => (text.length <= most ? text : Array.from(text.slice(0, most * 2)).slice(0, most).join(""));

/** Normalizes a name for the head of a quotation. */
export const oneLine = (name) => name.replace(/\s+/g, " ").trim();

/**
 * Inserts a passage at the caret as a quotation introduced by `lead`, on its own lines, truncated so that the box
 * holds at most `max` characters. Returns how many of its characters were inserted, and how many it has.
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
