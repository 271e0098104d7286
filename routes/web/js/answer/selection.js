/** Copying from the conversation: citations get the brackets that their buttons lack, formulas their source text. */

/** Text copied from `thread` cites its sources as the model wrote them: `[1, 3]`. */
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

/** A copy of the selection as the user sees it: citations become text; buttons and collapsed parts are left out. */
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

/** innerText breaks lines according to layout, so the copy must be on the page for a moment. */
function put(box, clipboard) {
  document.body.append(box);
  clipboard.setData("text/plain", box.innerText);
  box.remove();
  clipboard.setData("text/html", new XMLSerializer().serializeToString(box));
}
