/** Putting nodes in order without disturbing the one that the reader is at. */

/** `parent` holds exactly `nodes` afterwards, in that order. The one with the focus does not move, nor does the view. */
export function arrange(parent, nodes) {
  if (parent.childNodes.length === nodes.length && nodes.every((node, at) => node === parent.childNodes[at])) return;
  const top = parent.scrollTop;
  const wanted = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!wanted.has(node)) node.remove();
  // A node that moves loses the focus, and a field in it what was typed.
  const kept = nodes.find((node) => node.parentNode === parent && node.contains(document.activeElement));
  const at = nodes.indexOf(kept);
  for (const node of nodes.slice(0, Math.max(at, 0))) parent.insertBefore(node, kept);
  parent.append(...nodes.slice(at + 1));
  parent.scrollTop = top;
}
