/** What the page adds to a rendered fragment: source buttons for `[1]`, frames and copy for code. */

import { el, icon } from "./dom.js";

const MARK = /\[(\d{1,2}(?:\s*[,\uff0c\u3001]\s*\d{1,2})*)\]/g;

// Would be left alone at the start of a line: a line may break after a button.
const CLOSING = /[.,;:!?)\uff0c\u3002\u3001\uff1b\uff1a\uff01\uff1f\uff09\u300d\u201d]/;

/** `valid` is the set of source numbers, or null while the sources are not known yet. */
export function decorate(fragment, valid) {
  for (const text of citableTexts(fragment)) splitMarks(text, valid);
  for (const link of fragment.querySelectorAll("a:not([href])")) link.replaceWith(...link.childNodes); // refused
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  return fragment;
}

function citableTexts(fragment) {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.data.includes("[") && !node.parentElement?.closest("code, a")) found.push(node);
  }
  return found;
}

function splitMarks(text, valid) {
  const parts = [];
  let at = 0;
  for (const match of text.data.matchAll(MARK)) {
    parts.push(text.data.slice(at, match.index));
    at = match.index + match[0].length;
    const stop = CLOSING.test(text.data[at] ?? "") ? text.data[at++] : "";
    const buttons = match[1].split(/\D+/).map((number) => citeButton(Number(number)));
    parts.push(el("span", { class: "cites" }, ...buttons, stop));
  }
  if (!parts.length) return;
  const parent = text.parentNode;
  text.replaceWith(...parts.filter((part) => part !== ""), text.data.slice(at));
  if (valid) dropUnknownMarks(parent, valid);
}

function citeButton(number) {
  return el("button", { class: "cite", type: "button", text: number, "data-index": number, label: ["cite", { n: number }] });
}

/** A number that names no source was not a citation: it becomes text again. */
export function dropUnknownMarks(root, valid) {
  for (const button of root.querySelectorAll(".cite")) {
    if (valid.has(Number(button.dataset.index))) continue;
    const parent = button.parentNode;
    button.replaceWith(`[${button.dataset.index}]`);
    parent.normalize();
  }
}

function frameCode(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  const copy = el("button", { class: "quiet copy-code", type: "button", label: "copyCode" }, icon("copy"));
  const frame = el("div", { class: "code" }, el("div", { class: "code-bar" }, el("span", { text: language }), copy));
  pre.replaceWith(frame);
  pre.tabIndex = 0; // a wide block is scrolled with the keyboard
  frame.append(pre);
}
