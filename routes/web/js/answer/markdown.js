/**
 * Converts Markdown to a safe document fragment: marked, then DOMPurify, then the page's only HTML sink.
 *
 * The libraries are optional: if they are missing or blocked, the text is shown unchanged. Raw HTML and reference
 * links in an answer are shown as text, images as their alternative text.
 */

import { passageAt } from "../base/passage-link.js";
import { emphasisMask, emphasisTokenizer } from "./emphasis.js";
import { formulaExtension, FORMULAS } from "./formulas.js";

const SANITIZE = {
  ALLOWED_TAGS: [
    ..."a p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del".split(" "),
    ..."table thead tbody tr th td".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:|#\/d\/[\w-]+\/[\w-]+$)/i, // the last one: a passage on this page
  ADD_URI_SAFE_ATTR: ["start", "align"], // not addresses; `restrictAttributes` limits their values
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true, // required by the page's CSP (require-trusted-types-for)
};

let engine = null;

/** Resolves when the libraries are loaded or known to be missing. */
export const engineReady = Promise.all([
  import("../../vendor/marked.esm.js"),
  import("../../vendor/purify.es.mjs"),
]).then(
  ([{ Marked, Tokenizer }, { default: purify }]) => {
    purify.addHook("afterSanitizeAttributes", restrictAttributes);
    purify.sanitize("", SANITIZE); // creates the one Trusted Types policy that this page allows
    const marked = new Marked({ gfm: true, breaks: true, tokenizer: { ...tokenizer, ...emphasisTokenizer(Tokenizer) }, renderer });
    engine = { marked: marked.use(formulaExtension(escapeHtml), { hooks: { emStrongMask } }), purify };
  },
  () => console.info("Wenmai: the Markdown libraries are not installed; answers are plain text."),
);

const escapeHtml = (text) =>
  text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

/** An asterisk inside a formula does not close emphasis that began before it. */
const emStrongMask = (src) => emphasisMask(src.replace(FORMULAS, (raw) => "a".repeat(raw.length)));

// Returning undefined means "not such a token": the text falls through to a paragraph.
const tokenizer = { def() {}, html() {} };

const QUESTION_LEVEL = 2; // the heading level of a question; headings of its answer go below it

const renderer = {
  heading({ tokens, depth }) {
    const tag = `h${Math.min(6, depth + QUESTION_LEVEL)}`;
    return `<${tag}>${this.parser.parseInline(tokens)}</${tag}>\n`;
  },
  html: ({ text }) => (/^<br *\/?>$/i.test(text) ? "<br>" : escapeHtml(text)),
  image: ({ text }) => escapeHtml(text),
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
};

const ALLOWED_VALUES = { class: /^language-[\w+#.-]{1,30}$/, start: /^\d{1,9}$/, align: /^(?:left|right|center)$/ };

function restrictAttributes(node) {
  for (const [name, values] of Object.entries(ALLOWED_VALUES)) {
    if (node.hasAttribute?.(name) && !values.test(node.getAttribute(name))) node.removeAttribute(name);
  }
  if (node.tagName !== "A" || passageAt(node.getAttribute("href"))) return;
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("target", "_blank");
}

/** `blocks` are complete top-level blocks; the fragment has one or more elements for each. */
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
    return `<pre>${escapeHtml(block)}</pre>`; // marked recurses: thousands of nested quotes or lists overflow the stack
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
