/** What is copied of the conversation: source marks with the brackets that they do not have as buttons, and
 * formulas as they were written. */

/** Text copied out of `thread` names its sources as the model wrote them: `[1, 3]`. */
export function copyWithMarks(thread) {
  document.addEventListener("copy", (event) => {
    const selection = getSelection();
    if (selection.isCollapsed || !selection.containsNode(thread, true) || event.target.closest?.("input, textarea")) return;
    const copied = copiedNodes(selection.getRangeAt(0));
    if (copied.dataset.marks) {
      event.preventDefault();
      put(copied, event.clipboardData);
    }
  });
}

/** A copy of what is selected, as a reader sees it: marks are text, what is folded or a button is left out. */
function copiedNodes(range) {
  const box = document.createElement("div");
  box.className = "prose copied";
  box.append(range.cloneContents());
  for (const mark of box.querySelectorAll(".cites")) {
    box.dataset.marks = "true";
    mark.replaceWith(written(mark));
  }
  for (const formula of box.querySelectorAll(".formula[data-written]")) {
    box.dataset.marks = "true";
    formula.replaceChildren(formula.dataset.written);
  }
  for (const node of box.querySelectorAll("button, details:not([open]) > :not(summary)")) node.remove();
  return box;
}

const written = (mark) =>
  [...mark.childNodes].map((node) => (node.dataset?.index ? `[${node.dataset.index}]` : node.textContent)).join("")
    .replaceAll("][", ", ");

/** The lines of the plain text are those of the layout, which only what is on the page has. */
function put(box, clipboard) {
  document.body.append(box);
  clipboard.setData("text/plain", box.innerText);
  box.remove();
  clipboard.setData("text/html", new XMLSerializer().serializeToString(box));
}
