/** What was sent to the model for a turn: window usage, parts, request and reply. */

import { ApiError } from "../api/http.js";
import { readPrompt } from "../api/turns.js";
import { copyText } from "../base/clipboard.js";
import { el, icon } from "../base/dom.js";
import { causeOf } from "../base/i18n.js";
import { filterLine, leftOut, partList, word } from "./parts.js";

/** `handlers`: `goTo(element)` closes the dialog and goes to a turn on the page, `showRetrieval()` shows the other tab. */
export async function sentContent(turnId, handlers) {
  try {
    const prompt = await readPrompt(turnId);
    return prompt?.parts ? shown(prompt, handlers) : [el("p", { class: "faint", i18n: "promptNone" })];
  } catch (error) {
    return [el("p", { class: "faint", i18n: error instanceof ApiError ? causeOf(error) : "promptFailed" })];
  }
}

function shown(prompt, handlers) {
  const { request = {}, parts, filters } = prompt;
  const sent = parts.filter((part) => part.kept);
  return [
    facts(prompt),
    windowBar(sent, prompt),
    filterLine(filters),
    el("p", { class: "prompt-state", "data-exact": String(request.exact === true), i18n: state(request, parts) }),
    partList(sent, prompt.prompt_tokens, handlers),
    leftOut(parts.filter((part) => !part.kept), handlers),
    request.body && textBlock("promptRequest", "copyRequest", request.body),
    reply(prompt.response ?? {}),
    prompt.response?.raw && textBlock("promptRaw", "copyReply", prompt.response.raw),
  ].filter(Boolean);
}

function facts({ model_id: model, layout = "", prompt_tokens: used = 0, window, answer_tokens: answer }) {
  return el("p", { class: "prompt-facts" },
    el("span", { text: model }),
    layout && el("span", {}, el("span", { i18n: "promptLayout" }), el("span", { class: "layout", i18n: word("layout", layout) })),
    el("span", { i18n: ["promptUsed", { n: used }] }),
    window > 0 && el("span", { i18n: ["promptRoom", { window, answer }] }));
}

/** Says whether the request shown is exact, rebuilt, incomplete or was never sent. */
function state({ sha256, exact, body }, parts) {
  if (exact) return "promptExact";
  if (!sha256) return "promptUnsent";
  return body ? "promptRebuilt" : ["promptRemoved", { n: parts.filter((part) => part.removed).length }];
}

function textBlock(title, label, text) {
  const copy = el("button", { class: "quiet", type: "button", label, on: { click: () => copyText(text, copy) } }, icon("copy"));
  return el("div", { class: "code prompt-request" },
    el("div", { class: "code-bar" }, el("span", { i18n: title }), copy), el("pre", { tabindex: "0", text }));
}

function reply({ id, model, finish_reason: reason, status, usage }) {
  const counts = Object.entries(usage ?? {}).filter(([, count]) => Number.isFinite(count));
  const facts = [id, model, reason, status, ...counts.map(([name, count]) => `${name} ${count}`)].filter(Boolean).join(" · ");
  return facts && el("p", { class: "prompt-reply", i18n: ["promptReply", { facts }] });
}

/* How the model's window was used: each kind of part, the room reserved for the answer, and what is free. */

const KNOWN = ["persona", "system", "memory", "summary", "relevant_history", "recent_history", "knowledge", "attached", "question"];

/** `sent`: the parts that were sent, in order. If the window's size is unknown, shares are of the prompt. */
function windowBar(sent, { window = 0, answer_tokens: answer = 0, prompt_tokens: used = 0 }) {
  const shares = [...byKind(sent)];
  if (window > 0) shares.push(["answer", answer], ["free", Math.max(0, window - used - answer)]);
  const whole = Math.max(window, shares.reduce((sum, [, tokens]) => sum + tokens, 0));
  const shown = shares.filter(([, tokens]) => tokens > 0);
  if (!shown.length) return null;
  return el("div", { class: "window" },
    el("div", { class: "window-bar", "aria-hidden": "true" }, ...shown.map((share) => piece(share, whole))),
    el("ul", { class: "window-legend", label: "windowLabel" }, ...shown.map((share) => entry(share, whole))));
}

function byKind(parts) {
  const sums = new Map();
  for (const { part, tokens } of parts) sums.set(part, (sums.get(part) ?? 0) + (Number(tokens) || 0));
  return sums;
}

const kindOf = (name) => (KNOWN.includes(name) || name === "answer" || name === "free" ? name : "other");

function piece([name, tokens], whole) {
  const node = el("span", { "data-part": kindOf(name) });
  node.style.width = `${(tokens / whole) * 100}%`;
  return node;
}

function entry([name, tokens], whole) {
  const percent = (tokens / whole) * 100;
  const share = percent < 1 ? "< 1" : Math.round(percent);
  return el("li", {}, el("span", { class: "swatch", "data-part": kindOf(name) }),
    el("span", { i18n: word("part", name) }), el("span", { class: "legend-share", i18n: ["windowShare", { n: tokens, share }] }));
}
