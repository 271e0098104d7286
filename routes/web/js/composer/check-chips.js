/** A group of names to choose some of: chips that are checkboxes, with a field to find them where there are many. */

import { el } from "../base/dom.js";

const MANY = 12;

/** `items`: [{name, count}]; `chosen`: the names that are; `most`: as many as can be. */
export function checkChips({ title, items, chosen, most, onToggle }) {
  const chips = items.map((item) => chip(item, chosen.includes(item.name), onToggle));
  const list = el("div", { class: "check-chips" }, ...chips);
  const group = el("fieldset", { class: "picker" }, el("legend", { i18n: title }), items.length > MANY && finder(chips), list);
  const limit = () => bound(chips, most);
  list.addEventListener("change", limit);
  limit();
  return group;
}

function chip({ name, count }, checked, onToggle) {
  const box = el("input", { type: "checkbox", class: "offscreen", value: name, on: { change: () => onToggle(name, box.checked) } });
  box.checked = checked;
  return el("label", { class: "check-chip" }, box, el("span", { text: name }), el("span", { class: "count", text: count ?? "" }));
}

function finder(chips) {
  const found = (wanted) => chips.forEach((node) => (node.hidden = !folded(node.textContent).includes(folded(wanted)) && !boxOf(node).checked));
  return el("input", { type: "search", class: "finder", label: "pickerFind", "data-i18n-placeholder": "pickerFind",
    on: { input: ({ target }) => found(target.value.trim()) } });
}

/** No more can be chosen than a request takes. */
function bound(chips, most) {
  const full = chips.filter((node) => boxOf(node).checked).length >= most;
  for (const node of chips) boxOf(node).disabled = full && !boxOf(node).checked;
}

const boxOf = (node) => node.firstElementChild;
const folded = (text) => text.normalize("NFKC").toLowerCase();
