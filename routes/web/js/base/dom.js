/** Creates elements. Text always stays text: markup cannot be passed through here. */

import { translate } from "./i18n.js";

/**
 * `props`: `class`, `text`, `i18n` (key or [key, vars], stored so that a language switch updates it),
 * `label` (the same, for aria-label and title), `on` (listeners); anything else becomes an attribute.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  const { class: className, text, i18n, label, on, ...attributes } = props;
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  if (i18n) setText(node, ...[i18n].flat());
  if (label) setLabel(node, ...[label].flat());
  for (const [type, listener] of Object.entries(on ?? {})) node.addEventListener(type, listener);
  node.append(...children.filter(Boolean));
  return node;
}

export function setText(node, key, vars) {
  node.dataset.i18n = key;
  if (vars) node.dataset.i18nVars = JSON.stringify(vars);
  else delete node.dataset.i18nVars;
  translate(node);
}

export function setLabel(node, key, vars) {
  node.dataset.i18nLabel = key;
  if (vars) node.dataset.i18nLabelVars = JSON.stringify(vars);
  translate(node);
}

/** Shows a stored RFC 3339 time in the user's language. */
export function setMoment(node, timestamp) {
  node.dataset.moment = timestamp;
  translate(node);
}

/** A tooltip, for elements that are not controls. */
export function setTitle(node, key) {
  node.dataset.i18nTitle = key;
  translate(node);
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V6M6 11.5L12 5.5l6 6",
  stop: "M7.5 7.5h9v9h-9z",
  down: "M12 5v13M6 12.5l6 6 6-6",
  chevron: "M9 6l6 6-6 6",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  pencil: "M4 20l1-4.5L16.5 4 20 7.5 8.5 19zM14 6.5l3.5 3.5",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 13h8.4L17 7M10.5 10.5v6M13.5 10.5v6",
  docs: "M7 3.5h7l4 4v13H7zM14 3.5v4h4M10 12h5M10 16h5",
  memory: "M7 4h10v16l-5-3.5L7 20z",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.5h.01",
  upload: "M12 16V5M7 9.5L12 4.5l5 5M4.5 15.5v4h15v-4",
  import: "M12 4v9M8 9.5l4 4 4-4M3.5 13v6.5h17V13h-4.5l-1.5 3h-5L8 13z",
  back: "M19 12H5.5M11.5 5.5L5 12l6.5 6.5",
  quote: "M10 7H5.5v5.5H10V7zM10 12.5c0 2.5-1.5 4-3.5 4.5M18.5 7H14v5.5h4.5V7zM18.5 12.5c0 2.5-1.5 4-3.5 4.5",
  persona: "M15.5 8a3.5 3.5 0 1 1-7 0a3.5 3.5 0 0 1 7 0zM5 20c.5-4 3.2-6 7-6s6.5 2 7 6",
  filter: "M4 6h16M7 12h10M10 18h4",
  retry: "M5 12a7 7 0 1 1 2.2 5.1M5 12V7M5 12h5",
  branch: "M6 4v16M6 16.5c0-5 11-3.5 11-11M13.5 9L17 5.5 20.5 9",
  search: "M16 16l4.5 4.5M17.5 11a6.5 6.5 0 1 1-13 0a6.5 6.5 0 0 1 13 0z",
  dots: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  prompt: "M5 4.5h14v15H5zM8.5 9h7M8.5 12.5h7M8.5 16h4",
  key: "M12 15a4 4 0 1 1-8 0a4 4 0 0 1 8 0zM11 12.2L19.5 4M15.5 7.8l3 3",
  thumbUp: "M7 10.5V20H4v-9.5zM7 10.5l4-7c1.6 0 2.5 1.1 2.2 2.7l-.6 3.3H19a1.6 1.6 0 0 1 1.6 2l-1.7 7A2 2 0 0 1 16.9 20H7",
  thumbDown: "M7 13.5V4H4v9.5zM7 13.5l4 7c1.6 0 2.5-1.1 2.2-2.7l-.6-3.3H19a1.6 1.6 0 0 0 1.6-2l-1.7-7A2 2 0 0 0 16.9 4H7",
  pin: "M9 4h6l-.7 6.5 3.2 3.5h-11l3.2-3.5zM12 14v6",
  link: "M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7L11.5 6.8M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1.5-1.5",
  download: "M12 5v11M7.5 11.5L12 16l4.5-4.5M4.5 15.5v4h15v-4",
  help: "M9.3 9.2a2.8 2.8 0 1 1 4 2.6c-.9.4-1.3 1-1.3 2M12 17h.01M21 12a9 9 0 1 1-18 0a9 9 0 0 1 18 0z",
  sun: "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4M16 12a4 4 0 1 1-8 0a4 4 0 0 1 8 0z",
  contrast: "M21 12a9 9 0 1 1-18 0a9 9 0 0 1 18 0zM12 3v18M12 8.5l6.5-2M12 13l8.8-1.5M12 17.5l7-2",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

// Table cells: longer text than this is a sentence, not a name; codes and dates must not wrap at a hyphen.
const SENTENCE_CHARS = 20;
const CODE = /^[\x21-\x7e]{1,16}$/;

export function shapeCells(box) {
  for (const cell of box.querySelectorAll("td")) {
    if (cell.textContent.length > SENTENCE_CHARS) cell.className = "sentence";
    else if (CODE.test(cell.textContent)) cell.className = "code-cell";
  }
}

/** The file as a data: URL, the only kind of image URL that the page's CSP allows. */
export const dataUrl = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });

/** Whether the user is typing somewhere; a late reply must not take the focus then. */
export const isTyping = () => document.activeElement?.matches("input, textarea, select") ?? false;

/** Whether this is a touch device: there Enter inserts a line break, since no other key could, and a button sends. */
export const isTouch = () => matchMedia("(pointer: coarse)").matches;

/** Whether this key event in a question box sends the question. */
export const isSendKey = ({ key, shiftKey, altKey, ctrlKey, metaKey }) =>
  key === "Enter" && !shiftKey && !altKey && (!isTouch() || ctrlKey || metaKey);

/** Adds the icon to every `[data-icon]` of the static page. */
export function fillIcons() {
  for (const node of document.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
}
