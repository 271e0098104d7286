/** A dialog with the session's tree of turns: one row per turn, which opens it. */

import { el, icon } from "../base/dom.js";
import { hasWords, t } from "../base/i18n.js";

const PAGE_ROWS = 10;
/** Cloned for each turn, so that a thousand rows appear quickly. */
const ROW = el("li", { class: "map-item" }, el("button", { class: "map-row", type: "button", tabindex: -1 },
  el("span", { class: "map-question" }), el("span", { class: "map-state" }), el("span", { class: "map-time" })));

export class BranchMap {
  #rows = [];

  /** `shown` are the ids on the page; the last one is the current turn. `onChoose(turnId)` is called after closing. */
  constructor(tree, shown, onChoose) {
    Object.assign(this, { tree, shown, onChoose, here: [...shown].at(-1) });
    this.time = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
    this.list = el("ol", { class: "map-rows", on: { keydown: (event) => this.#key(event), click: (event) => this.#click(event) } });
    const close = el("button", { class: "quiet", label: "close" }, icon("close"));
    this.dialog = el("dialog", { class: "map-dialog", label: "mapTitle" }, el("div", { class: "panel" },
      el("div", { class: "panel-head" }, el("h2", { i18n: "mapTitle" }), el("form", { method: "dialog" }, close)), this.list));
  }

  /** Opens the dialog with the current turn's row focused and in view. */
  open() {
    this.list.append(...mapRows(this.tree).map((row) => this.#row(row)));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.addEventListener("close", () => this.#closed());
    document.body.append(this.dialog);
    this.dialog.showModal();
    const current = this.#rows.find((button) => button.hasAttribute("aria-current")) ?? this.#rows[0];
    this.#focus(current);
    current?.scrollIntoView({ block: "center" });
  }

  /** The line above the turns may have been redrawn in the meantime; then the browser cannot restore the focus. */
  #closed() {
    this.dialog.remove();
    if (document.activeElement === document.body) document.querySelector("#branches .open-map")?.focus({ preventScroll: true });
  }

  #row({ node, depth, kind, last }) {
    const { turn_id: id, status } = node;
    const item = ROW.cloneNode(true);
    const [button] = item.children;
    const [question, state, time] = button.children;
    const at = this.#time(node.created_at);
    question.textContent = node.question || at || t("untitled");
    if (node.question) time.textContent = at;
    if (status !== "completed") state.textContent = hasWords(`map_${status}`) ? t(`map_${status}`) : status;
    Object.assign(button.dataset, { status, shown: this.shown.has(id) });
    if (id === this.here) button.setAttribute("aria-current", "true");
    item.classList.add(kind, last ? "last" : "followed");
    item.style.setProperty("--depth", depth);
    button.turnId = id;
    this.#rows.push(button);
    return item;
  }

  #time(at) {
    const date = new Date(at);
    return Number.isNaN(date.getTime()) ? "" : this.time.format(date);
  }

  #click({ target }) {
    const row = target.closest(".map-row");
    if (!row) return;
    this.dialog.close();
    this.onChoose(row.turnId);
  }

  #key(event) {
    const at = this.#rows.indexOf(document.activeElement);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + PAGE_ROWS, PageUp: at - PAGE_ROWS, Home: 0, End: Infinity };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    this.#focus(this.#rows[Math.max(0, Math.min(steps[event.key], this.#rows.length - 1))]);
  }

  /** Roving tabindex: only one row can be reached by Tab. */
  #focus(row) {
    for (const other of this.list.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
    if (!row) return;
    row.tabIndex = 0;
    row.focus();
  }
}

/* The map's layout: one row per turn. No DOM. */

/**
 * Returns rows from the first root down. At a fork, the branch with the newest turn keeps its column and comes last;
 * the others come before it, indented by one column. So every column to the left of a row continues below it, and an
 * unforked conversation stays in one column however long it is.
 *
 * @returns {{node: object, depth: number, kind: "root" | "side" | "next", last: boolean}[]}
 *   a `side` row starts a branch off the previous column; nothing follows a `last` row in its own column.
 */
function mapRows(tree) {
  const onward = onwardOf(tree);
  const rows = [];
  const waiting = shownChildren(tree, null).map((node) => ({ node, depth: 0, kind: "root" })).reverse();
  while (waiting.length) {
    const row = waiting.pop();
    const next = onward.get(row.node.turn_id);
    rows.push({ ...row, last: !next });
    if (next) waiting.push({ node: next, depth: row.depth, kind: "next" });
    const sides = shownChildren(tree, row.node.turn_id).filter((node) => node !== next).reverse();
    waiting.push(...sides.map((node) => ({ node, depth: row.depth + 1, kind: "side" })));
  }
  return rows;
}

/** A command without successors is not part of the map. */
const isShown = (tree, node) => !node.command || tree.childrenOf(node.turn_id).length > 0;
const shownChildren = (tree, id) => tree.childrenOf(id).filter((node) => isShown(tree, node));

/** Maps each turn with successors to the child whose branch has the newest turn. */
function onwardOf(tree) {
  const onward = new Map();
  for (const newest of tree.nodes.filter((node) => isShown(tree, node)).reverse()) {
    let node = newest;
    for (let parent = tree.parentOf(node.turn_id); parent && !onward.has(parent); parent = tree.parentOf(parent)) {
      onward.set(parent, node);
      node = tree.node(parent);
    }
  }
  return onward;
}
