/** Wires the page's parts together. */

import { copyWithMarks } from "./answer/selection.js";
import { forgetKey, onKeyNeeded, readKey } from "./api/http.js";
import { listModels, publicSettings } from "./api/turns.js";
import { subscribe } from "./base/bus.js";
import { askForKey } from "./base/dialogs.js";
import { fillIcons, setText } from "./base/dom.js";
import { toggleLanguage, translateAll } from "./base/i18n.js";
import { closeMenu } from "./base/menu.js";
import { passageAt } from "./base/passage-link.js";
import { Composer } from "./composer/view.js";
import { Chat } from "./conversation/chat.js";
import { Follower } from "./conversation/follow.js";
import { DocumentsPanel } from "./documents/panel.js";
import { setUpShortcuts, showKeys } from "./frame/keys.js";
import { Sidebar } from "./frame/sidebar.js";
import { setUpThemeMenu } from "./frame/theme.js";
import { MemoryPanel } from "./memory/panel.js";
import { SessionHead } from "./sessions/head.js";
import { showImport } from "./sessions/import.js";
import { SessionList } from "./sessions/list.js";
import { SessionSearch } from "./sessions/search.js";
import { CitePreview } from "./sources/preview.js";

const find = (selector) => document.querySelector(selector);
const UUID = "[0-9a-f-]{36}";
/** `#/s/<session>`, or `#/s/<session>/<turn>` for the branch through that turn (ending there if the page itself wrote it). */
const placeInUrl = () => new RegExp(`^#/s/(${UUID})(?:/(${UUID}))?$`, "i").exec(location.hash) ?? [];
const sessionInUrl = () => placeInUrl()[1] ?? null;
const hashOf = (sessionId, leaf) =>
  sessionId ? `#/s/${sessionId}${new RegExp(`^${UUID}$`, "i").test(leaf) ? `/${leaf}` : ""}` : "#/";

fillIcons();
translateAll();
onKeyNeeded(askForKey);

new CitePreview(find("#thread"));
copyWithMarks(find("#thread"));
const sidebar = new Sidebar();
const follower = new Follower(find("#thread"), find("#to-end"));
const announce = (text) => (find("#announcer").textContent = text);
const sessions = new SessionList(find("#sessions"), {
  onErased: (id) => id === chat.sessionId && go(null),
  onCurrent: (session) => head.show(session),
  leafOf: (id) => (id === chat.sessionId ? chat.shown.lastQuestion?.turnId : undefined),
  isAnswering: (id) => chat.isAnswering(id),
  announce,
});
const head = new SessionHead(sessions, { main: find("main"), topbar: find("#topbar") });
const search = new SessionSearch(find("#session-search"), (text) => sessions.search(text));
const documents = new DocumentsPanel(find("#documents"), { onCount: showDocumentCount, onReading: showReading, announce, tray: () => composer.images });
const memory = new MemoryPanel(find("#memories"));
const composer = new Composer(find("#composer"), { ask: (question, images) => chat.ask(question, { images }), stop: () => chat.stop(), openSession });
const chat = new Chat(find("#thread"), follower, {
  branchLine: find("#branches"),
  composer: find("#composer"),
  focusComposer: () => composer.focus(),
  maxChars: () => composer.box.maxChars,
  onPlace: placed,
  options: () => composer.options.chosen,
  onChange: reflect,
  onSessionStarted: started,
  onAsked: (view, sessionId) => composer.asked(view, sessionId),
  onTextLeft: (text, sessionId) => composer.keep(text, sessionId),
  onTurnEnded: (view, sessionId) => {
    sessions.refresh();
    composer.ended(view, sessionId);
  },
  announce,
});

/** Updates the page's frame to the conversation's state. */
function reflect() {
  document.body.classList.toggle("empty", chat.empty);
  composer.running = chat.running !== null;
  composer.conversation = chat.sessionId;
  sessions.current = chat.sessionId;
}

function go(sessionId) {
  const hash = hashOf(sessionId);
  if (location.hash === hash || (!location.hash && hash === "#/")) show();
  else location.hash = hash;
}

function show() {
  sidebar.close();
  closeMenu(); // it may belong to the previous conversation
  const [, sessionId = null, leaf] = placeInUrl();
  if (leaf && !history.state?.ends) chat.openAt(sessionId, leaf);
  else chat.open(sessionId, leaf);
  sessions.opened();
  composer.focus();
  if (chat.sessionId && matchMedia("(pointer: coarse)").matches) head.focus();
}

/**
 * Writes the shown branch into the address. The history state, which survives a reload but is not part of a copied
 * link, records that the branch ends at that turn. If the address names another session, it has just changed and its
 * hashchange event will follow.
 */
function placed(sessionId, leaf, isStep = false) {
  if (sessionInUrl() !== sessionId || hashOf(sessionId, leaf) === location.hash) return;
  history[isStep ? "pushState" : "replaceState"]({ ends: true }, "", hashOf(sessionId, leaf));
}

function urlChanged() {
  const [, sessionId = null, leaf] = placeInUrl();
  if (sessionId !== chat.sessionId || leaf !== chat.leaf) show();
}

/** A new conversation got its id: put it into the address without adding a history entry. */
function started(sessionId) {
  if (!sessionInUrl()) history.replaceState(null, "", `#/s/${sessionId}`);
  composer.begun(sessionId);
  sessions.current = sessionId;
  sessions.refresh();
}

/** Opens a conversation that was created for a persona, before its first question. */
function openSession(sessionId) {
  history.replaceState(null, "", `#/s/${sessionId}`);
  return chat.open(sessionId);
}

/** The example questions are about the bundled guide and useless without it; they become invisible rather than removed,
 * so that the layout does not jump. Until `isSettled`, a new server may still load the guide. */
function showDocumentCount(n, hasSample, isSettled) {
  find(".examples").classList.toggle("unseen", !hasSample && (n !== "0" || isSettled));
  for (const badge of document.querySelectorAll(".document-count")) badge.textContent = n === "0" ? "" : n;
}

/** Closes the sidebar first: on a phone it would cover the page when the panel closes. */
function openDocuments() {
  sidebar.close();
  documents.open();
}

/** `which`: a memory to correct, as an answer used it. */
function openMemory(which) {
  sidebar.close();
  memory.open(which);
}

function openPassage({ documentId, chunkId }) {
  sidebar.close();
  documents.openPassage(documentId, chunkId);
}

/** Shows which documents are still being ingested and cannot be asked about yet. */
function showReading({ n, total, done, isEmpty }) {
  const note = find("#sample-progress");
  if (!n && isEmpty) return setText(note, "noDocuments");
  if (n) return setText(note, total ? "docReadingOf" : "docReading", { n, done, total });
  note.textContent = "";
  delete note.dataset.i18n;
}

addEventListener("hashchange", urlChanged);
for (const back of ["focus", "online"]) addEventListener(back, () => chat.catchUp());
document.addEventListener("visibilitychange", () => document.hidden || chat.catchUp());
for (const button of document.querySelectorAll(".new-chat")) button.addEventListener("click", () => go(null));
for (const button of document.querySelectorAll(".open-documents")) button.addEventListener("click", () => openDocuments());
for (const button of document.querySelectorAll(".example")) {
  button.addEventListener("click", () => chat.running || composer.submit(button.textContent));
}
find("#language").addEventListener("click", toggleLanguage);
subscribe("open-passage", (passage) => openPassage(passage));
find("#open-import").addEventListener("click", () => showImport(() => sessions.refresh(), sessions.expireDays));
find("#open-memory").addEventListener("click", () => openMemory());
subscribe("open-memory", openMemory);
subscribe("edit-last", () => chat.handlers.editLast());
subscribe("language", () => {
  sessions.draw();
  head.draw();
});
subscribe("key-changed", () => {
  readAll();
  showOtherKey();
  if (chat.sessionId && !chat.running && !chat.shown.views.length) chat.open(chat.sessionId, chat.leaf);
});
subscribe("server-back", () => {
  chat.catchUp();
  readAll();
});
subscribe("owner-changed", () => {
  history.replaceState(null, "", "#/");
  location.reload();
});
find("#other-key").addEventListener("click", forgetKey);
setUpFrame({
  newChat: () => go(null),
  question: () => find("#question").focus(),
  search: () => {
    sidebar.open();
    search.focus();
  },
});

const passageInUrl = passageAt(location.hash);
show();
readAll();
showOtherKey();
if (passageInUrl) openPassage(passageInUrl); // the link was opened in a new window
if (document.documentElement.dataset.early) find("#composer").requestSubmit();

/** Loads everything that does not depend on the open conversation. A loaded list of documents keeps its position. */
function readAll() {
  sessions.refresh();
  if (!documents.list.isLoaded) documents.dialog.open ? documents.open() : documents.begin();
  composer.options.load(listModels);
  publicSettings().then(settle, () => {}); // the defaults serve
}

function showOtherKey() {
  find("#other-key").hidden = !readKey();
}

function settle(settings) {
  sessions.expireDays = settings?.expire_days;
  composer.settings = settings;
  documents.limits = settings ?? {};
}

/* The page's frame: theme, keyboard shortcuts and their help. */

/** `handlers`: {newChat, search, question}, the handlers of the shortcuts. */
function setUpFrame(handlers) {
  const keys = document.querySelector("#keys");
  setUpThemeMenu(document.querySelector("#theme"));
  keys.addEventListener("click", showKeys);
  setUpShortcuts({ ...handlers, help: showKeys });
}
