/** Making elements. Text only ever becomes text: there is no way to pass markup through here. */

import { translate } from "./i18n.js";

/**
 * `props`: `class`, `text`, `i18n` (key or [key, vars], kept so that a language switch reaches it),
 * `label` (the same, for aria-label and title), `on` (listeners); anything else is an attribute.
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
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  upload: "M12 16V5M7 9.5L12 4.5l5 5M4.5 15.5v4h15v-4",
  retry: "M5 12a7 7 0 1 1 2.2 5.1M5 12V7M5 12h5",
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

/** Puts an icon into every `[data-icon]` of the static page. */
export function fillIcons() {
  for (const node of document.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
}
