/** How the map lays a session's tree out: a row for each turn. No DOM. */

/**
 * Rows from the first root down. Where the conversation forks, the branch that goes on longest into the present
 * keeps its column and comes last; the others stand before it, one column further in. So a row's columns to the
 * left of its own all go on below it, and a straight conversation stays in one column however long it is.
 *
 * @returns {{node: object, depth: number, kind: "root" | "side" | "next", last: boolean}[]}
 *   `side` begins a branch of the column before; nothing follows a `last` one in its own column.
 */
export function mapRows(tree) {
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

/** A command that nothing follows is no part of the map. */
const isShown = (tree, node) => !node.command || tree.childrenOf(node.turn_id).length > 0;
const shownChildren = (tree, id) => tree.childrenOf(id).filter((node) => isShown(tree, node));

/** For each turn that is followed: the child whose branch has the newest turn. */
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
