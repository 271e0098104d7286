/** The dialog about a turn's prompt: what was sent to the model, and what retrieval finds for it now. */

import { readPrompt } from "../api/turns.js";
import { showDialog } from "../base/dialogs.js";
import { el, icon } from "../base/dom.js";
import { RetrievalTab } from "./retrieval.js";
import { sentContent } from "./sent.js";

/** Opens the dialog; Esc or a click outside closes it and returns the focus to `opener`. */
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

/** Shows the summary of earlier turns that the model was given for this one. */
export async function showSummary(turnId) {
  const prompt = await readPrompt(turnId).catch(() => null);
  const text = prompt?.parts?.find(({ part, kept }) => part === "summary" && kept)?.text;
  const close = el("div", { class: "dialog-actions" }, el("button", { class: "button primary", i18n: "close" }));
  const content = text ? el("p", { class: "summary-text", text }) : el("p", { class: "faint", i18n: "summaryGone" });
  await showDialog([el("h2", { i18n: "summaryTitle" }), content, close], "small-dialog");
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

/* ARIA tabs: one tab stop, arrow keys, Home and End; one panel per tab. */

/**
 * `panes` are {id, title, content, onFirst}; the first is selected. `onFirst` is called when a pane is shown for the
 * first time. Returns the elements to insert, and `choose(id)`, which also moves the focus there.
 */
function tabs(label, panes) {
  const buttons = panes.map((pane) => el("button", { class: "tab", type: "button", role: "tab", id: `${pane.id}-tab`,
    "aria-controls": pane.id, i18n: pane.title, on: { click: () => select(pane) } }));
  const panels = panes.map((pane) => el("div", { class: "tab-panel", role: "tabpanel", id: pane.id,
    "aria-labelledby": `${pane.id}-tab` }, pane.content));
  const shown = new Set();

  function select(chosen) {
    for (const [at, pane] of panes.entries()) {
      buttons[at].setAttribute("aria-selected", String(pane === chosen));
      buttons[at].tabIndex = pane === chosen ? 0 : -1;
      panels[at].hidden = pane !== chosen;
    }
    if (!shown.has(chosen)) chosen.onFirst?.();
    shown.add(chosen);
  }

  const go = (at) => {
    select(panes[at]);
    buttons[at].focus();
  };
  const bar = el("div", { class: "tabs", role: "tablist", label, on: { keydown: (event) => key(event, buttons, go) } }, ...buttons);
  select(panes[0]);
  return { elements: [bar, ...panels], choose: (id) => go(panes.findIndex((pane) => pane.id === id)) };
}

function key(event, buttons, go) {
  const at = buttons.indexOf(event.target.closest("[role=tab]"));
  const last = buttons.length - 1;
  const to = { ArrowLeft: at === 0 ? last : at - 1, ArrowRight: at === last ? 0 : at + 1, Home: 0, End: last }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  go(to);
}
