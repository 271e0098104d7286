/** Shows the session's other branches: the line above the turns, the version pagers, the map, the note below. */

import { listTurns, readTree } from "../api/sessions.js";
import { el, icon } from "../base/dom.js";
import { BranchMap } from "./map.js";
import { Tree } from "./tree.js";

/* How many turns are loaded at once. One that is sought may be far up in a long branch: then the page shows the branch
   as far as SHOWN_BELOW turns below it, as if the reader continued there. */
const NEWEST = 200;
const EARLIER = 50;
const SHOWN_BELOW = 100;
const MAX_BELOW = 1000;

export class Branching {
  /** The tree of the session on the page; null while unknown. */
  tree = null;
  #mapOf = null; // the session whose map is loading

  /** `shown` are the page's turns; `onGo(leaf, turnId)` must show the branch, scrolled to that turn. */
  constructor(shown, { line, composer, onGo }) {
    Object.assign(this, { shown, onGo });
    this.line = new BranchLine(line, { onMap: () => this.#askForMap(), onNewest: () => onGo() });
    this.note = new ContinuingNote(composer, (turnId) => onGo(this.tree?.newestBelow(turnId)));
  }

  /** Loads the session's tree; null if it cannot be read. */
  async read(sessionId) {
    this.sessionId = sessionId;
    const nodes = sessionId && (await readTree(sessionId).catch(() => null));
    return nodes ? new Tree(nodes) : null;
  }

  /**
   * Loads the branch's last turns, at least from `through` on, and the tree, a promise `late` if the branch is long; if
   * its end no longer exists (erased, expired), the newest branch. `asked`, a running turn, may not have reached the
   * server yet: then the branch it continues is loaded.
   */
  async readBranch(thread, asked, through) {
    const fresh = thread.sought ? await this.#findEnd(thread) : null;
    const limit = this.#reach(fresh ?? this.tree, thread, through);
    const [id, known] = [asked?.view.turnId, this.tree];
    const late = fresh ?? this.read(thread.sessionId);
    const turns = await this.#turnsOf(thread, limit);
    if (turns[0]?.parent_turn_id && !fresh && !known && !id) return { turns, tree: null, late };
    const tree = await late;
    if (!id || turns.some((turn) => turn.turn_id === id)) return { turns, tree };
    if (tree?.newest === id) return { turns: await listTurns(thread.sessionId, NEWEST), tree }; // it arrived between the two reads
    const parent = tree?.node(id) ? undefined : asked.body?.parent_turn_id;
    if (parent === undefined || parent === (turns.at(-1)?.turn_id ?? null)) return { turns, tree };
    return { turns: parent ? await listTurns(thread.sessionId, NEWEST, parent) : [], tree };
  }

  async #findEnd(thread) {
    const tree = await this.read(thread.sessionId);
    const end = tree?.newestBelow(thread.sought) ?? thread.sought;
    thread.show(end === tree?.newest ? undefined : end);
    return tree;
  }

  /** How many turns to load: the page's first turn stays the first if it can. What is newest may be newer than `tree`. */
  #reach(tree, thread, through) {
    const path = ancestors(thread.leaf ?? tree?.newest, tree);
    const below = path.indexOf(through);
    const first = path.indexOf(this.shown.views[0]?.turnId);
    if (below > MAX_BELOW) {
      thread.show(path[below - SHOWN_BELOW]);
      return NEWEST;
    }
    const limit = Math.max(NEWEST, below + SHOWN_BELOW);
    return thread.leaf && first >= Math.max(below, 0) ? Math.min(limit, first + 1) : limit;
  }

  async #turnsOf(thread, limit) {
    return listTurns(thread.sessionId, limit, thread.leaf).catch((error) => {
      if (!thread.leaf || error.status !== 404) throw error;
      thread.leaf = undefined;
      return listTurns(thread.sessionId, limit);
    });
  }

  /** Loads the turns before the first one on the page. */
  readEarlier() {
    return listTurns(this.sessionId, EARLIER, this.shown.above);
  }

  clear() {
    this.tree = this.sessionId = null;
    this.line.clear();
    this.note.hide();
  }

  /**
   * The end of the shown branch in `tree`, which was just loaded: undefined for the newest turn of all, null if nothing
   * is new. If the user chose to continue from an earlier turn, the branch still ends there.
   */
  endIn(tree, leaf) {
    if (tree.nodes.every(({ turn_id: id }) => this.shown.find(id) || this.tree?.node(id))) return null;
    const last = this.shown.lastQuestion?.turnId;
    const end = !last || this.tree?.isFollowed(last) ? leaf : tree.newestBelow(last);
    return end === tree.newest ? undefined : end;
  }

  /** Called when the branch with these turns is shown. Returns whether there are other branches. */
  begin(tree, ids) {
    this.tree = tree;
    const aside = tree && otherBranches(tree, ids);
    if (tree) this.line.show(aside);
    else this.line.clear();
    return Boolean(aside && (aside.newest || aside.others > 0));
  }

  /** Redraws everything for the turns now on the page, with the newer `tree` if given. */
  update(tree = this.tree) {
    this.begin(tree, this.shown.ids);
    for (const view of this.shown.views) this.mark(view);
    const last = this.shown.lastQuestion;
    if (last && tree?.isFollowed(last.turnId)) this.note.show(last);
    else this.note.hide();
  }

  /** Adds a turn just sent to the server. A tree loaded before its parent was sent has no place for it. */
  add(view, parent) {
    if (parent && !this.tree?.node(parent)) this.tree = null;
    this.tree = this.tree?.with({ turn_id: view.turnId, parent_turn_id: parent, status: "running", command: view.command,
      question: view.question, created_at: new Date().toISOString() }) ?? null;
    this.update();
  }

  /** Shows the version number in the turn's pager. */
  mark(view) {
    const versions = this.tree?.versionsOf(view.turnId) ?? [];
    view.actions.versions.show(versions.indexOf(view.turnId) + 1, view.command ? 0 : versions.length);
  }

  /** The id of the version `step` away from this one; undefined if there is none. */
  adjacentVersion(view, step) {
    const versions = this.tree?.versionsOf(view.turnId) ?? [];
    return versions[versions.indexOf(view.turnId) + step];
  }

  /** Opens one map only, even on a double click. */
  async #askForMap() {
    const { sessionId } = this;
    if (this.#mapOf === sessionId) return;
    this.#mapOf = sessionId;
    await this.#openMap().finally(() => this.#mapOf === sessionId && (this.#mapOf = null));
  }

  async #openMap() {
    const sessionId = this.sessionId;
    const tree = (await this.read(sessionId)) ?? this.tree;
    if (!tree || sessionId !== this.sessionId) return;
    this.update(tree);
    const shown = new Set([...ancestors(this.shown.above, tree), ...this.shown.ids]);
    new BranchMap(tree, shown, (turnId) => this.onGo(tree.newestBelow(turnId), turnId)).open();
  }
}

/** The line above the first turn that leads to the session's other branches; hidden if there are none. */
class BranchLine {
  /** `onMap()` must open the map of branches, `onNewest()` show the newest branch. */
  constructor(element, { onMap, onNewest }) {
    Object.assign(this, { element, onMap, onNewest });
  }

  /** Takes the result of `otherBranches`. If the focus was in the line, it stays there. */
  show({ newest, others, total }) {
    const held = this.element.contains(document.activeElement) && document.activeElement.className;
    this.element.hidden = !newest && others === 0;
    this.element.replaceChildren(...(this.element.hidden ? [] : [this.#map(total), newest && this.#newest()].filter(Boolean)));
    if (held) (this.element.getElementsByClassName(held)[0] ?? this).focus({ preventScroll: true });
  }

  focus() {
    (this.element.querySelector(".newest") ?? this.element.querySelector("button"))?.focus({ preventScroll: true });
  }

  clear() {
    this.element.replaceChildren();
    this.element.hidden = true;
  }

  #map(n) {
    return el("button", { class: "open-map", type: "button", "aria-haspopup": "dialog", on: { click: () => this.onMap() } },
      icon("branch"), el("span", { i18n: ["branchCount", { n }] }));
  }

  #newest() {
    return el("button", { class: "text-button newest", type: "button", i18n: "newestBranch", on: { click: () => this.onNewest() } });
  }
}

/* The note at the question box saying that the next question will not continue the end of its branch. */

const MAX_CHARS = 80;

class ContinuingNote {
  /** Placed before `composer`. `onDismiss(turnId)` must show again what followed that turn. */
  constructor(composer, onDismiss) {
    Object.assign(this, { onDismiss, turnId: null });
    this.element = el("div", { class: "continuing", role: "status" });
    composer.before(this.element);
  }

  show({ turnId, question }) {
    if (turnId === this.turnId) return;
    this.turnId = turnId;
    const text = Array.from(question.replace(/\s+/g, " ")).slice(0, MAX_CHARS).join("");
    this.element.replaceChildren(icon("branch"), el("span", { i18n: ["continuing", { text }] }),
      el("button", { class: "quiet", type: "button", label: "continuingStop", on: { click: () => this.onDismiss(turnId) } }, icon("close")));
  }

  hide() {
    this.turnId = null;
    this.element.replaceChildren();
  }
}

/* Counts the branches of a session besides the one shown. */

/**
 * `shown` are the ids on the page. In the result, `others` counts the branches other than the newest and the shown
 * one, `total` counts all, and `newest` says whether the newest branch is not the shown one. A command without
 * successors does not count as a branch.
 */
function otherBranches(tree, shown) {
  const onNewest = new Set();
  addAncestors(tree.newest, tree, onNewest);
  const ends = lastQuestions(tree);
  const others = ends.filter(({ turn_id: id }) => !shown.has(id) && !onNewest.has(id)).length;
  const newest = newestQuestion(tree);
  return { newest: newest !== undefined && !shown.has(newest), others, total: ends.length };
}

/** A trailing command such as `/help` does not make the branch a different one. */
function newestQuestion(tree) {
  const parent = tree.node(tree.newest)?.command ? tree.parentOf(tree.newest) : null;
  return parent ?? tree.newest;
}

function lastQuestions(tree) {
  const questions = tree.nodes.filter((node) => !node.command);
  const followed = new Set();
  for (const { turn_id: id } of questions) addAncestors(tree.parentOf(id), tree, followed);
  return questions.filter((node) => !followed.has(node.turn_id));
}

/** The turn `id` and those before it, newest first. */
function ancestors(id, tree) {
  const path = new Set();
  if (tree?.node(id)) addAncestors(id, tree, path);
  return [...path];
}

/** Adds the turns from `id` up to its root to `path`, stopping at the first one already in it. */
function addAncestors(id, tree, path) {
  for (; id && !path.has(id); id = tree.parentOf(id)) path.add(id);
}
