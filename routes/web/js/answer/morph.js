/** Makes rendered nodes like freshly rendered ones, touching only what differs. */

/**
 * The children of `parent` from index `from` become those of `fragment`. Nodes that stay the same keep the
 * reader's selection, focus and scroll; a text that only grew is only added to.
 */
export function morph(parent, from, fragment) {
  let old = parent.childNodes[from] ?? null;
  for (const fresh of [...fragment.childNodes]) {
    if (!old) {
      parent.append(fresh);
      continue;
    }
    const next = old.nextSibling;
    if (!patched(old, fresh)) old.replaceWith(fresh);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** Whether `old` could be made like `fresh`. */
function patched(old, fresh) {
  if (old.isEqualNode(fresh)) return true;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
  if (old.nodeType === Node.TEXT_NODE) return patchText(old, fresh.data);
  if (!sameAttributes(old, fresh)) return false;
  morph(old, 0, fresh);
  return true;
}

function patchText(node, data) {
  if (data.startsWith(node.data)) node.appendData(data.slice(node.length));
  else node.data = data;
  return true;
}

function sameAttributes(old, fresh) {
  const names = old.getAttributeNames();
  return names.length === fresh.attributes.length && names.every((name) => old.getAttribute(name) === fresh.getAttribute(name));
}
