/** What a session's tree holds besides the branch that is shown. */

/**
 * `shown` are the ids on the page. `others` counts the branches besides the newest of all and the one that is shown,
 * `total` counts all; `newest` says whether the newest branch is elsewhere. A command that nothing follows makes
 * no branch of its own.
 */
export function branchesAside(tree, shown) {
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

/** Adds the turns from `id` to its root to `seen`, as far as they are not there yet. */
function pathUp(id, tree, seen) {
  for (; id && !seen.has(id); id = tree.parentOf(id)) seen.add(id);
}
