/**
 * Markdown to a safe document fragment: marked, then DOMPurify last, then the page's only HTML sink.
 *
 * The libraries are optional. Without them (not installed, or blocked) text is shown as it is.
 * Raw HTML in an answer is text, images are their alternative text, reference links are text.
 */

import { passageAt } from "../base/passage-link.js";
import { emphasisMask, emphasisTokenizer } from "./emphasis.js";
import { formulaExtension, MATHS } from "./formulas.js";

const SANITIZE = {
  ALLOWED_TAGS: [
    ..."a p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del".split(" "),
    ..."table thead tbody tr th td".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:|#\/d\/[\w-]+\/[\w-]+$)/i, // the last: a passage, in this page
  ADD_URI_SAFE_ATTR: ["start", "align"], // no addresses; `restrain` says what they may be
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true, // the page's policy takes nothing else (require-trusted-types-for)
};

let engine = null;

/** Resolves when the libraries are there, or are known to be missing. */
export const engineReady = Promise.all([
  import("../../vendor/marked.esm.js"),
  import("../../vendor/purify.es.mjs"),
]).then(
  ([{ Marked, Tokenizer }, { default: purify }]) => {
    purify.addHook("afterSanitizeAttributes", restrain);
    purify.sanitize("", SANITIZE); // makes the one Trusted Types policy that this page allows
    const marked = new Marked({ gfm: true, breaks: true, tokenizer: { ...tokenizer, ...emphasisTokenizer(Tokenizer) }, renderer });
    engine = { marked: marked.use(formulaExtension(escapeHtml), { hooks: { emStrongMask } }), purify };
  },
  () => console.info("Wenmai: the Markdown libraries are not installed; answers are plain text."),
);

const escapeHtml = (text) =>
  text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

/** An asterisk inside a formula ends no emphasis that began before it. */
const emStrongMask = (src) => emphasisMask(src.replace(MATHS, (raw) => "a".repeat(raw.length)));

// Returning undefined means "this is no such token": the text falls through to a paragraph.
const tokenizer = { def() {}, html() {} };

const QUESTION_LEVEL = 2; // of a question's heading: those of its answer stand below it

const renderer = {
  heading({ tokens, depth }) {
    const tag = `h${Math.min(6, depth + QUESTION_LEVEL)}`;
    return `<${tag}>${this.parser.parseInline(tokens)}</${tag}>\n`;
  },
  html: ({ text }) => (/^<br *\/?>$/i.test(text) ? "<br>" : escapeHtml(text)),
  image: ({ text }) => escapeHtml(text),
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
};

const MAY_BE = { class: /^language-[\w+#.-]{1,30}$/, start: /^\d{1,9}$/, align: /^(?:left|right|center)$/ };

function restrain(node) {
  for (const [name, values] of Object.entries(MAY_BE)) {
    if (node.hasAttribute?.(name) && !values.test(node.getAttribute(name))) node.removeAttribute(name);
  }
  if (node.tagName !== "A" || passageAt(node.getAttribute("href"))) return;
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("target", "_blank");
}

/** `blocks` are whole top-level blocks; the fragment holds one or more elements for each. */
export function toFragment(blocks) {
  if (!engine) return plain(blocks);
  const template = document.createElement("template");
  const html = blocks.map(toHtml).join("");
  template.innerHTML = engine.purify.sanitize(html, SANITIZE);
  return template.content;
}

function toHtml(block) {
  try {
    return engine.marked.parse(block);
  } catch {
    return `<pre>${escapeHtml(block)}</pre>`; // thousands of quotes or lists in one another: marked recurses
  }
}

function plain(blocks) {
  const fragment = document.createDocumentFragment();
  for (const block of blocks) {
    const paragraph = document.createElement("p");
    paragraph.className = "plain";
    paragraph.textContent = block.trimEnd();
    fragment.append(paragraph);
  }
  return fragment;
}
