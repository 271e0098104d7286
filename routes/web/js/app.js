/** Puts the page's parts together. */

import { listModels, onKeyNeeded, publicSettings } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { askForKey } from "./dialogs.js";
import { DocumentsPanel } from "./documents.js";
import { fillIcons, setText } from "./dom.js";
import { Follower } from "./follow.js";
import { toggleLanguage, translateAll } from "./i18n.js";
import { followAll } from "./jobs.js";
import { Options } from "./options.js";
import { toggleTheme } from "./prefs.js";
import { SessionList } from "./sessions.js";
import { Sidebar } from "./sidebar.js";

const find = (selector) => document.querySelector(selector);
const sessionInUrl = () => /^#\/s\/([0-9a-f-]{36})$/i.exec(location.hash)?.[1] ?? null;

fillIcons();
translateAll();
onKeyNeeded(askForKey);

const sidebar = new Sidebar();
const options = new Options(find("#model"), find("#thinking"));
const follower = new Follower(find("#thread"), find("#to-end"));
const sessions = new SessionList(find("#sessions"), { onDeleted: (id) => id === chat.sessionId && go(null) });
const documents = new DocumentsPanel(find("#documents"), { onCount: showDocumentCount });
const composer = new Composer(find("#composer"), { onSend: (question) => chat.ask(question), onStop: () => chat.stop() });
const chat = new Chat(find("#thread"), follower, {
  branchLine: find("#branches"),
  options: () => options.chosen,
  onChange: reflect,
  onSessionStarted: started,
  onTurnEnded: () => sessions.refresh(),
  announce: (text) => (find("#announcer").textContent = text),
});

/** The page's frame follows the conversation's state. */
function reflect() {
  document.body.classList.toggle("empty", chat.empty);
  composer.running = chat.running !== null;
  sessions.current = chat.sessionId;
}

function go(sessionId) {
  const hash = sessionId ? `#/s/${sessionId}` : "#/";
  if (location.hash === hash) show();
  else location.hash = hash;
}

function show() {
  sidebar.close();
  chat.open(sessionInUrl());
  composer.focus();
}

/** A new conversation got its id: the address names it, without a new step in the history. */
function started(sessionId) {
  history.replaceState(null, "", `#/s/${sessionId}`);
  sessions.current = sessionId;
  sessions.refresh();
}

function showDocumentCount(n) {
  for (const badge of document.querySelectorAll(".document-count")) badge.textContent = n === "0" ? "" : n;
}

function followSample() {
  const note = find("#sample-progress");
  followAll(
    (progress) => setText(note, "sampleLoading", progress),
    () => {
      note.textContent = "";
      delete note.dataset.i18n;
      documents.refresh();
    },
  );
}

addEventListener("hashchange", () => sessionInUrl() !== chat.sessionId && show());
for (const button of document.querySelectorAll(".new-chat")) button.addEventListener("click", () => go(null));
for (const button of document.querySelectorAll(".open-documents")) button.addEventListener("click", () => documents.open());
for (const button of document.querySelectorAll(".example")) {
  button.addEventListener("click", () => chat.running || chat.ask(button.textContent));
}
find("#theme").addEventListener("click", toggleTheme);
find("#language").addEventListener("click", toggleLanguage);

show();
sessions.refresh();
followSample();
options.load(listModels);
publicSettings().then(
  (settings) => {
    composer.maxChars = settings?.max_question_chars;
    documents.formats = settings?.formats;
  },
  () => {}, // the defaults serve
);
