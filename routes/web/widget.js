/**
 * A small chat widget for pages of other sites, which must be listed in CORS_ORIGINS:
 *   <script src="https://wenmai.example.org/widget.js" data-key="site-…" data-title="…" data-language="en" data-side="left"></script>
 * It lives in a shadow root, which isolates it from the page's styles and selectors, and the page from its styles.
 * Answers are shown as plain text. The conversation lasts as long as the tab, the visitor id as long as local storage.
 */
(() => {
  const WORDS = {
    zh: {
      title: "问脉", open: "打开对话", close: "关闭", question: "你的问题", placeholder: "问点什么…", send: "发送", stop: "停止",
      sources: "来源", log: "对话", again: "重新开始", failed: "没能连上，或者这个网站没有得到允许。", cut: "回答中断了。",
    },
    en: {
      title: "Wenmai", open: "Open the chat", close: "Close", question: "Your question", placeholder: "Ask something…", send: "Send",
      stop: "Stop", sources: "Sources", log: "Conversation", again: "Start again",
      failed: "No connection, or this site is not allowed to ask.", cut: "The answer broke off.",
    },
  };
  const STYLE = `
    :host { all: initial; }
    * { box-sizing: border-box; font: 15px/1.5 system-ui, sans-serif; }
    [hidden] { display: none !important; }
    .open, .panel { position: fixed; bottom: 20px; z-index: 2147483000; }
    .right { right: 20px; } .left { left: 20px; }
    .open { width: 56px; height: 56px; border: 0; border-radius: 50%; background: #1d5a72; color: #fff; font-size: 24px; cursor: pointer; box-shadow: 0 4px 16px #0004; }
    .panel { display: flex; flex-direction: column; width: min(380px, calc(100vw - 40px)); height: min(560px, calc(100vh - 40px)); background: #fff; color: #1c2326; border: 1px solid #ccd3d6; border-radius: 14px; overflow: hidden; box-shadow: 0 8px 32px #0003; }
    header { display: flex; gap: 8px; align-items: center; padding: 10px 14px; border-bottom: 1px solid #e3e8ea; }
    header strong { flex: 1; font-weight: 600; }
    button.plain { border: 0; background: none; color: inherit; cursor: pointer; padding: 4px 8px; }
    .log { flex: 1; overflow-y: auto; padding: 14px; }
    .log p { margin: 0 0 12px; white-space: pre-wrap; overflow-wrap: anywhere; }
    .log .user { background: #eef3f5; border-radius: 10px; padding: 8px 12px; }
    .log .error { color: #9c2b1b; }
    .log ol { margin: -6px 0 14px; padding-left: 22px; color: #5a666b; }
    .log li { font-size: 13px; }
    form { display: flex; gap: 8px; padding: 10px; border-top: 1px solid #e3e8ea; }
    input { flex: 1; min-width: 0; padding: 8px 10px; border: 1px solid #ccd3d6; border-radius: 8px; color: inherit; background: transparent; }
    form button { border: 0; border-radius: 8px; padding: 8px 14px; background: #1d5a72; color: #fff; cursor: pointer; }
    @media (prefers-color-scheme: dark) { .panel { background: #1a2023; color: #e4e9eb; border-color: #3a4448; } .log .user { background: #263035; } .log ol { color: #9fabb0; } .log .error { color: #f0917f; } }
    :focus-visible { outline: 2px solid #2f8fb3; outline-offset: 2px; }`;
  const VISITOR = "wenmai.visitor";
  const MESSAGES = "wenmai.messages";
  const MAX_MESSAGES = 40; // sent with a question; the server has the rest

  const script = document.currentScript;
  const { key = "", side = "right", language = document.documentElement.lang || navigator.language } = script.dataset;
  const words = WORDS[language.toLowerCase().startsWith("zh") ? "zh" : "en"];
  const address = new URL("v1/chat/completions", script.src);

  function el(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    made.append(...children);
    return made;
  }

  /** Reads a stored value; `otherwise()` if there is none or storage is forbidden. */
  function kept(storage, name, otherwise) {
    try {
      return JSON.parse(window[storage].getItem(name)) ?? otherwise();
    } catch {
      return otherwise();
    }
  }
  function keep(storage, name, value) {
    try {
      window[storage].setItem(name, JSON.stringify(value));
    } catch {
      // it lasts until the page is left
    }
  }

  const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const visitor = kept("localStorage", VISITOR, randomId);
  keep("localStorage", VISITOR, visitor);
  let messages = kept("sessionStorage", MESSAGES, () => []);
  let answering = null; // the AbortController of the running answer

  const log = el("div", { class: "log", role: "log", tabindex: "0", "aria-label": words.log });
  const field = el("input", { "aria-label": words.question, placeholder: words.placeholder, maxlength: "4000", autocomplete: "off" });
  const submit = el("button", { type: "submit" }, words.send);
  const form = el("form", {}, field, submit);
  const again = el("button", { class: "plain", type: "button", "aria-label": words.again, title: words.again }, "↺");
  const close = el("button", { class: "plain", type: "button", "aria-label": words.close }, "✕");
  const title = script.dataset.title || words.title;
  const panel = el("section", { class: `panel ${side === "left" ? "left" : "right"}`, role: "dialog", "aria-label": title },
    el("header", {}, el("strong", {}, title), again, close), log, form);
  const open = el("button", { class: `open ${side === "left" ? "left" : "right"}`, type: "button", "aria-label": words.open, "aria-expanded": "false" }, "?");

  function show(isOpen) {
    panel.hidden = !isOpen;
    open.hidden = isOpen;
    open.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) log.scrollTop = log.scrollHeight; // while hidden it had no height to scroll
    (isOpen ? field : open).focus();
  }

  function line(role, text) {
    const made = el("p", { class: role }, text);
    log.append(made);
    made.scrollIntoView({ block: "end" });
    return made;
  }

  function listSources(citations) {
    const used = citations.some(({ cited }) => cited) ? citations.filter(({ cited }) => cited) : citations;
    if (!used.length) return;
    const items = used.map(({ index, file_name: name, heading, key_passage: passage }) =>
      el("li", { value: String(index), title: passage ?? "" }, [name, heading].filter(Boolean).join(" · ")));
    log.append(el("ol", { "aria-label": words.sources }, ...items));
  }

  function draw() {
    log.replaceChildren();
    for (const { role, content, citations } of messages) {
      line(role, content);
      if (citations) listSources(citations);
    }
  }

  /** Parses the chunks of a stream in OpenAI's format. */
  async function* chunksOf(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const frames = (rest + piece.value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) if (frame.startsWith("data: {")) yield JSON.parse(frame.slice(6));
    }
  }

  async function request(signal) {
    const headers = { "Content-Type": "application/json", "X-Visitor-Id": visitor };
    if (key) headers.Authorization = `Bearer ${key}`;
    const sent = messages.slice(-MAX_MESSAGES).map(({ role, content }) => ({ role, content }));
    const body = JSON.stringify({ model: "wenmai", stream: true, messages: sent });
    const response = await fetch(address, { method: "POST", headers, body, signal, credentials: "omit", referrerPolicy: "no-referrer" });
    if (response.ok) return response.body;
    throw new Error((await response.json().catch(() => null))?.error?.message ?? `HTTP ${response.status}`);
  }

  async function ask(question) {
    messages.push({ role: "user", content: question });
    line("user", question);
    const asked = messages;
    const shown = line("assistant", "…");
    const answer = { role: "assistant", content: "", citations: [] };
    answering = new AbortController();
    submit.textContent = words.stop;
    try {
      for await (const { error, choices = [] } of chunksOf(await request(answering.signal))) {
        if (error) throw new Error(error.message);
        const { content, citations } = choices[0]?.delta ?? {};
        if (citations) answer.citations = citations;
        if (content) shown.textContent = answer.content += content;
      }
      listSources(answer.citations);
    } catch (error) {
      if (!answer.content) shown.remove();
      if (error.name !== "AbortError") line("error", error instanceof TypeError ? (answer.content ? words.cut : words.failed) : error.message);
    }
    // an unanswered question would be merged with the next one
    if (answer.content) asked.push(answer);
    else asked.pop();
    if (asked === messages) keep("sessionStorage", MESSAGES, messages);
    answering = null;
    submit.textContent = words.send;
    log.scrollTop = log.scrollHeight;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (answering) return answering.abort();
    const question = field.value.trim();
    field.value = "";
    if (question) ask(question);
  });
  again.addEventListener("click", () => {
    answering?.abort();
    keep("sessionStorage", MESSAGES, (messages = []));
    draw();
    field.focus();
  });
  open.addEventListener("click", () => show(true));
  close.addEventListener("click", () => show(false));
  panel.addEventListener("keydown", (event) => event.key === "Escape" && show(false));

  const host = el("div", { id: "wenmai-widget", lang: words === WORDS.zh ? "zh-CN" : "en" });
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet(); // the host page's CSP may forbid inline styles
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  panel.hidden = true;
  root.append(open, panel);
  draw();
  const stand = () => document.body.append(host);
  if (document.body) stand();
  else addEventListener("DOMContentLoaded", stand);
})();
