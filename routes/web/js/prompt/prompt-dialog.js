/** The dialog about one turn's prompt: what was sent to the model, and what a search for it finds now. */

import { el, icon } from "../base/dom.js";
import { RetrievalTab } from "./retrieval-tab.js";
import { sentContent } from "./sent-tab.js";
import { tabs } from "./tabs.js";

/** Opens it over the page; Esc or a click beside it closes it, and `opener` has the focus again. */
export async function showPrompt(turnId, opener) {
  const sent = el("div", { class: "prompt-body" });
  const retrieval = new RetrievalTab(turnId);
  const panes = [
    { id: "prompt-sent", title: "promptTab", content: sent },
    { id: "prompt-retrieval", title: "retrievalTab", content: retrieval.element, onFirst: () => retrieval.load() },
  ];
  const bar = tabs("promptTitle", panes);
  const dialog = el("dialog", { class: "prompt-dialog", label: "promptTitle" }, el("div", { class: "panel" }, head(), ...bar.elements));
  let goal = opener;
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => closed(dialog, goal));
  document.body.append(dialog);
  dialog.showModal();
  sent.append(...(await sentContent(turnId, {
    goTo: (target) => {
      goal = target;
      dialog.close();
    },
    showRetrieval: () => bar.choose("prompt-retrieval"),
  })));
}

function closed(dialog, goal) {
  dialog.remove();
  if (!goal.matches("button")) {
    goal.tabIndex = -1;
    goal.addEventListener("blur", () => goal.removeAttribute("tabindex"), { once: true });
  }
  goal.focus();
  goal.scrollIntoView({ block: "nearest" });
}

function head() {
  const close = el("button", { class: "quiet", label: "close" }, icon("close"));
  return el("div", { class: "panel-head" }, el("h2", { i18n: "promptTitle" }), el("form", { method: "dialog" }, close));
}
