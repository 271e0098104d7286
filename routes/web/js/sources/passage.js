/** A chunk's text with its key passage marked. */

import { el } from "../base/dom.js";

/**
 * Nodes for `text`. The passage is marked where the server says it stands; else where the same words stand
 * first; a passage that is no part of the text stands above it, marked.
 */
export function markedText({ text = "", key_passage: passage, passage_start: start }) {
  if (!passage) return [text];
  const at = placeOf(text, passage, start);
  if (at < 0) return [el("mark", { class: "apart", text: passage }), text];
  return [text.slice(0, at), el("mark", { text: passage }), text.slice(at + passage.length)];
}

/** For a glance: the rows of a table as words, its cells with dots between, without its ruler. */
export const atAGlance = (text = "") => text.split("\n").map(glanced).filter(Boolean).join("\n");

function glanced(line) {
  if (!line.trimStart().startsWith("|")) return line;
  if (/^[\s|:-]+$/.test(line)) return "";
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
