/** What a session's tree holds besides the branch that is shown. */

const MOST = 10;

/**
 * `nodes` are the tree's turns in time order, `shown` the ids on the page. `total` counts the other branches,
 * `ends` are the last questions of the newest of them; `newest` says whether the newest branch of all is
 * elsewhere, which is not among them. A command that nothing follows makes no branch of its own.
 */
export function branchesAside(nodes, shown) {
  const parents = new Map(nodes.map((node) => [node.turn_id, node.parent_turn_id]));
  const newest = nodes.at(-1)?.turn_id;
  const known = new Set([...shown, ...pathUp(newest, parents)]);
  const others = lastQuestions(nodes, parents).filter((node) => !known.has(node.turn_id));
  return { newest: newest !== undefined && !shown.has(newest), total: others.length, ends: others.slice(0, MOST) };
}

/** Newest first. */
function lastQuestions(nodes, parents) {
  const questions = nodes.filter((node) => !node.command);
  const followed = new Set();
  for (const { turn_id: id } of questions) pathUp(parents.get(id), parents, followed);
  return questions.filter((node) => !followed.has(node.turn_id)).reverse();
}

/** Adds the turns from `id` to its root to `seen`, as far as they are not there yet. */
function pathUp(id, parents, seen = new Set()) {
  for (; id && !seen.has(id); id = parents.get(id)) seen.add(id);
  return seen;
}
