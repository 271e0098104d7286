/** What the page adds to a rendered fragment: source buttons for `[1]`, frames and copy for code. */

import { el, icon } from "../base/dom.js";
import { tellHosts } from "./links.js";
import { findMarks, numbersOf } from "./marks.js";

// Would be left alone at the start of a line: a line may break after a button.
const CLOSING = /[.,;:!?)\uff0c\u3002\u3001\uff1b\uff1a\uff01\uff1f\uff09\u300d\u201d]/;

/** `valid` is the set of source numbers, or null while the sources are not known yet. */
export function decorate(fragment, valid) {
  for (const text of citableTexts(fragment)) splitMarks(text, valid);
  for (const link of fragment.querySelectorAll("a:not([href])")) link.replaceWith(...link.childNodes); // refused
  tellHosts(fragment);
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  return fragment;
}

function citableTexts(fragment) {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[[【(\uff08]/.test(node.data) && !node.parentElement?.closest("code, a")) found.push(node);
  }
  return found;
}

function splitMarks(text, valid) {
  const parts = [];
  let at = 0;
  for (const mark of findMarks(text.data, beginsLine(text))) {
    const buttons = buttonsFor(mark.list, valid);
    if (!buttons) continue;
    const before = text.data.slice(at, mark.at);
    const lead = spacesAfter(before);
    at = mark.end;
    const stop = CLOSING.test(text.data[at] ?? "") ? text.data[at++] : "";
    parts.push(before.slice(0, before.length - lead.length),
      el("span", { class: "cites", "data-mark": mark.raw, "data-list": mark.list }, lead, ...buttons, stop));
  }
  if (parts.length) text.replaceWith(...parts.filter((part) => part !== ""), text.data.slice(at));
}

/** They go into the mark's span, where no line breaks: a mark that began a line would stand away from its word. */
const spacesAfter = (text) => text.slice(Math.max(text.trimEnd().length, text.lastIndexOf("\n") + 1));

const beginsLine = ({ previousSibling: before, parentElement: parent }) =>
  before ? before.nodeName === "BR" : !parent?.matches("em, strong, del");

/** A button for each source, text for a number that names none; null when the mark names no source at all. */
function buttonsFor(list, valid) {
  const numbers = numbersOf(list, valid);
  const known = (number) => !valid || valid.has(number);
  if (!numbers.some(known)) return null;
  return numbers.map((number) => (known(number) ? citeButton(number) : `[${number}]`));
}

function citeButton(number) {
  return el("button", { class: "cite", type: "button", text: number, "data-index": number, label: ["cite", { n: number }] });
}

/** The sources are known now: what was taken for a mark and names none of them becomes text again. */
export function settleMarks(root, valid) {
  for (const span of root.querySelectorAll(".cites")) {
    const buttons = buttonsFor(span.dataset.list, valid);
    const [lead] = /^\s*/.exec(span.textContent);
    const last = span.textContent.at(-1);
    const stop = CLOSING.test(last) ? last : "";
    if (buttons) settleMark(span, lead, buttons, stop);
    else {
      const parent = span.parentNode;
      span.replaceWith(lead + span.dataset.mark + stop);
      parent.normalize();
    }
  }
}

function settleMark(span, lead, buttons, stop) {
  const same = buttons.every((button) => button.nodeType) && buttons.length === span.querySelectorAll(".cite").length;
  if (!same) span.replaceChildren(...[lead, ...buttons, stop].filter((part) => part !== ""));
  span.normalize();
}

function frameCode(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  const copy = el("button", { class: "quiet copy-code", type: "button", label: "copyCode" }, icon("copy"));
  const frame = el("div", { class: "code" }, el("div", { class: "code-bar" }, el("span", { text: language }), copy));
  pre.replaceWith(frame);
  pre.tabIndex = 0; // a wide block is scrolled with the keyboard
  frame.append(pre);
}
