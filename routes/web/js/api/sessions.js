/** Sessions and their personas over HTTP. */

import { id, readJson, send, withJson } from "./http.js";

/** The newest, or those before the cursor `before`; with `query`, only those whose title or a turn has it. */
export function listSessions({ before, query } = {}) {
  const from = before ? `&before=${id(before)}` : "";
  return readJson(`/sessions?limit=50${from}${query ? `&q=${id(query)}` : ""}`);
}
export const readSession = (sessionId) => readJson(`/sessions/${id(sessionId)}`);
/** `changes`: {title} or {hold}, or what its questions are answered with: {model_id}, {thinking}, {tools}. */
export const changeSession = (sessionId, changes) =>
  readJson(`/sessions/${id(sessionId)}`, withJson("PATCH", changes));
/** `format`: "md" or "json". */
export const exportSession = (sessionId, format) => send(`/sessions/${id(sessionId)}/export?format=${format}`);
/** Its reply says how many turns went. */
export const deleteSession = (sessionId) => readJson(`/sessions/${id(sessionId)}`, { method: "DELETE" });
/** The branch that ends in `leaf`; without it, the newest. */
export const listTurns = async (sessionId, leaf) =>
  (await readJson(`/sessions/${id(sessionId)}/turns${leaf ? `?leaf=${id(leaf)}` : ""}`)).turns;
export const readTree = async (sessionId) => (await readJson(`/sessions/${id(sessionId)}/tree`)).turns;

/** The links to branches of it that still open, without their addresses. */
export const listShares = async (sessionId) => (await readJson(`/sessions/${id(sessionId)}/shares`)).shares;
/** `options`: {leaf?, expire_days, passages}. Its reply has the address. */
export const createShare = (sessionId, options) => readJson(`/sessions/${id(sessionId)}/shares`, withJson("POST", options));
export const revokeShare = (sessionId, shareId) =>
  readJson(`/sessions/${id(sessionId)}/shares/${id(shareId)}`, { method: "DELETE" });
/** A conversation in the form of our own export: all of it, or nothing. */
export const importSession = (body) => readJson("/sessions/import", withJson("POST", body));
/** An export of another product: what it would bring in, or, with `apply`, what it brought in. */
export const importFile = (file, apply) => readJson(`/sessions/import/file?apply=${apply}`, { method: "POST", body: file });

/* A conversation's persona over HTTP. */

const address = (sessionId) => `/sessions/${id(sessionId)}`;

/** `persona`: {text, name?, document_id?, chunk_id?}. Gives it as it is kept. */
export const setPersona = async (sessionId, persona) =>
  (await readJson(`${address(sessionId)}/persona`, withJson("PUT", persona)))?.persona ?? null;
export const clearPersona = (sessionId) => readJson(`${address(sessionId)}/persona`, { method: "DELETE" });
/** A new conversation's id; it is in the list at once. */
export const createSession = async () => (await readJson("/sessions", withJson("POST", {}))).session_id;
