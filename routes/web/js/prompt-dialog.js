/** The dialog that shows what was sent to the model for one turn. */

import { ApiError, readPrompt } from "./api.js";
import { copyText } from "./clipboard.js";
import { el, icon } from "./dom.js";
import { partList } from "./prompt-parts.js";

const FEW = 3;

/** Opens it over the page; Esc or a click beside it closes it, and `opener` has the focus again. */
export async function showPrompt(turnId, opener) {
  const body = el("div", { class: "prompt-body" });
  const dialog = el("dialog", { class: "prompt-dialog", label: "promptTitle" }, el("div", { class: "panel" }, head(), body));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    opener.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  body.append(...(await content(turnId)));
}

function head() {
  const close = el("button", { class: "quiet", label: "close" }, icon("close"));
  return el("div", { class: "panel-head" }, el("h2", { i18n: "promptTitle" }), el("form", { method: "dialog" }, close));
}

async function content(turnId) {
  try {
    const prompt = await readPrompt(turnId);
    return prompt?.parts ? shown(prompt) : [el("p", { class: "faint", i18n: "promptNone" })];
  } catch (error) {
    return [el("p", { class: "faint", i18n: error instanceof ApiError ? error.message : "promptFailed" })];
  }
}

function shown(prompt) {
  const { request = {}, parts } = prompt;
  return [
    facts(prompt),
    el("p", { class: "prompt-state", "data-exact": String(request.exact === true), i18n: state(request, parts) }),
    partList(parts.filter((part) => part.kept), prompt.prompt_tokens),
    leftOut(parts.filter((part) => !part.kept), prompt.prompt_tokens),
    request.body && requestBlock(request.body),
    reply(prompt.response ?? {}),
  ].filter(Boolean);
}

function facts({ model_id: model, layout = "", prompt_tokens: used = 0, window, answer_tokens: answer }) {
  return el("p", { class: "prompt-facts" },
    el("span", { i18n: ["promptFacts", { model, layout, used }] }),
    window > 0 && el("span", { i18n: ["promptRoom", { window, answer }] }));
}

/** What the request below is: the very one, none, or no longer whole. */
function state({ sha256, exact, body }, parts) {
  if (exact) return "promptExact";
  if (!sha256) return "promptUnsent";
  return body ? "promptRebuilt" : ["promptRemoved", { n: parts.filter((part) => part.removed).length }];
}

function leftOut(parts, total) {
  return parts.length > 0 && el("details", { class: "uncited", open: parts.length <= FEW },
    el("summary", {}, icon("chevron"), el("span", { i18n: ["promptDropped", { n: parts.length }] })), partList(parts, total));
}

function requestBlock(text) {
  const copy = el("button", { class: "quiet", type: "button", label: "copyRequest", on: { click: () => copyText(text, copy) } }, icon("copy"));
  return el("div", { class: "code prompt-request" },
    el("div", { class: "code-bar" }, el("span", { i18n: "promptRequest" }), copy), el("pre", { tabindex: "0", text }));
}

function reply({ id, finish_reason: reason, usage }) {
  const counts = Object.entries(usage ?? {}).filter(([, count]) => Number.isFinite(count));
  const facts = [id, reason, ...counts.map(([name, count]) => `${name} ${count}`)].filter(Boolean).join(" · ");
  return facts && el("p", { class: "prompt-reply", i18n: ["promptReply", { facts }] });
}
