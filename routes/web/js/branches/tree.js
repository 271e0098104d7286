/** The tree of a session's turns: versions, successors and branch ends. No DOM. */

export class Tree {
  #byId = new Map();
  #places = new Map();
  #children = new Map();

  /** `nodes` as the server lists them: in time order, `parent_turn_id` null for a root. */
  constructor(nodes) {
    this.nodes = nodes;
    for (const [place, node] of nodes.entries()) {
      this.#byId.set(node.turn_id, node);
      this.#places.set(node.turn_id, place);
    }
    for (const node of nodes) {
      const parent = this.parentOf(node.turn_id);
      if (!this.#children.has(parent)) this.#children.set(parent, []);
      this.#children.get(parent).push(node);
    }
  }

  /** A copy with one more turn, the newest, which was only just sent to the server. */
  with(node) {
    return new Tree([...this.nodes.filter(({ turn_id: id }) => id !== node.turn_id), node]);
  }

  get newest() {
    return this.nodes.at(-1)?.turn_id;
  }

  node(id) {
    return this.#byId.get(id);
  }

  /** The parent's id; null for a root, undefined for a turn that is not in the tree. */
  parentOf(id) {
    if (!this.#byId.has(id)) return undefined;
    const parent = this.#byId.get(id).parent_turn_id;
    return this.#byId.has(parent) ? parent : null;
  }

  childrenOf(id) {
    return this.#children.get(id) ?? [];
  }

  /** The ids of the question's versions (siblings, including itself), in time order; commands do not count. */
  versionsOf(id) {
    const parent = this.parentOf(id);
    if (parent === undefined) return [];
    return this.#children.get(parent).filter((node) => !node.command).map((node) => node.turn_id);
  }

  /** The end of the newest branch through the turn. */
  newestBelow(id) {
    let newest = id;
    for (const below of this.#below(id)) {
      if (!this.node(below).command && this.#places.get(below) > this.#places.get(newest)) newest = below;
    }
    return newest;
  }

  isFollowed(id) {
    return this.childrenOf(id).some((node) => !node.command);
  }

  /** All descendants, excluding the turn itself. A loop in a corrupt tree is walked once. */
  #below(id) {
    const below = new Set([id]);
    for (const each of below) for (const child of this.childrenOf(each)) below.add(child.turn_id);
    below.delete(id);
    return below;
  }
}
