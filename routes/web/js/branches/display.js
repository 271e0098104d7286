/** What the page shows of the session's other branches: the line above, the pagers, the map, the note below. */

import { listTurns, readTree } from "../api/sessions.js";
import { el, icon } from "../base/dom.js";
import { BranchMap } from "./map.js";
import { Tree } from "./tree.js";

export class Branching {
  /** Of the session on the page; null while it is not known. */
  tree = null;
  #mapOf = null; // the session whose map is on its way

  /** `shown` are the page's turns; `onGo(leaf, turnId)` is to show a branch, at that turn of it. */
  constructor(shown, { line, composer, onGo }) {
    Object.assign(this, { shown, onGo });
    this.line = new BranchLine(line, { onMap: () => this.#askForMap(), onNewest: () => onGo() });
    this.note = new ContinuingNote(composer, (turnId) => onGo(this.tree?.newestBelow(turnId)));
  }

  /** null when it cannot be read. */
  async read(sessionId) {
    this.sessionId = sessionId;
    const nodes = sessionId && (await readTree(sessionId).catch(() => null));
    return nodes ? new Tree(nodes) : null;
  }

  /**
   * The branch's turns and the tree. A branch whose end is gone (erased, expired) gives way to the newest. `asked`,
   * a turn under way on it, may be on its way to the server yet: then it is the branch that it goes on with.
   */
  async readBranch(thread, asked) {
    if (thread.sought) await this.#findEnd(thread);
    const [turns, tree] = await Promise.all([this.#turnsOf(thread), this.read(thread.sessionId)]);
    const id = asked?.view.turnId;
    if (!id || turns.some((turn) => turn.turn_id === id)) return { turns, tree };
    if (tree?.newest === id) return { turns: await listTurns(thread.sessionId), tree }; // it arrived between the two
    const parent = tree?.node(id) ? undefined : asked.body?.parent_turn_id;
    if (parent === undefined || parent === (turns.at(-1)?.turn_id ?? null)) return { turns, tree };
    return { turns: parent ? await listTurns(thread.sessionId, parent) : [], tree };
  }

  async #findEnd(thread) {
    const tree = await this.read(thread.sessionId);
    const end = tree?.newestBelow(thread.sought) ?? thread.sought;
    thread.show(end === tree?.newest ? undefined : end);
  }

  async #turnsOf(thread) {
    return listTurns(thread.sessionId, thread.leaf).catch((error) => {
      if (!thread.leaf || error.status !== 404) throw error;
      thread.leaf = undefined;
      return listTurns(thread.sessionId);
    });
  }

  clear() {
    this.tree = this.sessionId = null;
    this.line.clear();
    this.note.hide();
  }

  /**
   * Where the branch on the page goes on in `tree`, read just now: undefined at the newest turn of all, null when
   * there is nothing new. Where the reader chose to continue from an earlier turn, it goes on there.
   */
  endIn(tree, leaf) {
    if (tree.nodes.every(({ turn_id: id }) => this.shown.find(id) || this.tree?.node(id))) return null;
    const last = this.shown.lastQuestion?.turnId;
    const end = !last || this.tree?.isFollowed(last) ? leaf : tree.newestBelow(last);
    return end === tree.newest ? undefined : end;
  }

  /** The branch with these turns comes onto the page. Says whether there are others. */
  begin(tree, ids) {
    this.tree = tree;
    const aside = tree && branchesAside(tree, ids);
    if (tree) this.line.show(aside);
    else this.line.clear();
    return Boolean(aside && (aside.newest || aside.others > 0));
  }

  /** Draws it all as the page's turns are now, with the newer `tree` if there is one. */
  update(tree = this.tree) {
    this.begin(tree, this.shown.ids);
    for (const view of this.shown.views) this.mark(view);
    const last = this.shown.lastQuestion;
    if (last && tree?.isFollowed(last.turnId)) this.note.show(last);
    else this.note.hide();
  }

  /** A turn that the server was just asked for. A tree read before its parent was asked has no place for it. */
  add(view, parent) {
    if (parent && !this.tree?.node(parent)) this.tree = null;
    this.tree = this.tree?.with({ turn_id: view.turnId, parent_turn_id: parent, status: "running", command: view.command,
      question: view.question, created_at: new Date().toISOString() }) ?? null;
    this.update();
  }

  /** Shows in the turn's pager which version it is. */
  mark(view) {
    const versions = this.tree?.versionsOf(view.turnId) ?? [];
    view.actions.versions.show(versions.indexOf(view.turnId) + 1, view.command ? 0 : versions.length);
  }

  /** The version beside this one; undefined where there is none. */
  versionBeside(view, step) {
    const versions = this.tree?.versionsOf(view.turnId) ?? [];
    return versions[versions.indexOf(view.turnId) + step];
  }

  /** One for a double click. */
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
    new BranchMap(tree, this.shown.ids, (turnId) => this.onGo(tree.newestBelow(turnId), turnId)).open();
  }
}

/** The line above the first turn that leads to the session's other branches; there only when there are any. */
class BranchLine {
  /** `onMap()` is to open the map of branches, `onNewest()` to show the newest. */
  constructor(element, { onMap, onNewest }) {
    Object.assign(this, { element, onMap, onNewest });
  }

  /** `aside` as `branchesAside` gives it. The focus stays in the line when it was there. */
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

/* The line at the question box that says that the next question does not go on at the end of its branch. */

const MAX_CHARS = 80;

class ContinuingNote {
  /** Stands before `composer`. `onDismiss(turnId)` is to show what came after that turn again. */
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

/* What a session's tree holds besides the branch that is shown. */

/**
 * `shown` are the ids on the page. `others` counts the branches besides the newest of all and the one that is shown,
 * `total` counts all; `newest` says whether the newest branch is elsewhere. A command that nothing follows makes
 * no branch of its own.
 */
function branchesAside(tree, shown) {
  const onNewest = new Set();
  pathUp(tree.newest, tree, onNewest);
  const ends = lastQuestions(tree);
  const others = ends.filter(({ turn_id: id }) => !shown.has(id) && !onNewest.has(id)).length;
  const newest = newestQuestion(tree);
  return { newest: newest !== undefined && !shown.has(newest), others, total: ends.length };
}

/** A `/help` at the end of a branch does not make it another one. */
function newestQuestion(tree) {
  const parent = tree.node(tree.newest)?.command ? tree.parentOf(tree.newest) : null;
  return parent ?? tree.newest;
}

function lastQuestions(tree) {
  const questions = tree.nodes.filter((node) => !node.command);
  const followed = new Set();
  for (const { turn_id: id } of questions) pathUp(tree.parentOf(id), tree, followed);
  return questions.filter((node) => !followed.has(node.turn_id));
}

/** Adds the turns from `id` to its root to `path`, as far as they are not there yet. */
function pathUp(id, tree, path) {
  for (; id && !path.has(id); id = tree.parentOf(id)) path.add(id);
}
