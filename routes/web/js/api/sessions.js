/** HTTP calls for sessions and their personas. */

import { id, readJson, send, withJson } from "./http.js";

/** The newest sessions, or those before the cursor `before`; with `query`, only those with a match in title or turns. */
export function listSessions({ before, query } = {}) {
  const from = before ? `&before=${id(before)}` : "";
  return readJson(`/sessions?limit=50${from}${query ? `&q=${id(query)}` : ""}`);
}
export const readSession = (sessionId) => readJson(`/sessions/${id(sessionId)}`);
/** `changes`: {title} or {hold}, or how its questions are answered: {model_id}, {thinking}, {tools}. */
export const changeSession = (sessionId, changes) =>
  readJson(`/sessions/${id(sessionId)}`, withJson("PATCH", changes));
/** `format`: "md" or "json". */
export const exportSession = (sessionId, format) => send(`/sessions/${id(sessionId)}/export?format=${format}`);
/** The reply says how many turns were deleted. */
export const deleteSession = (sessionId) => readJson(`/sessions/${id(sessionId)}`, { method: "DELETE" });
/** The last `limit` turns of the branch that ends in `leaf`; by default, of the newest branch. */
export const listTurns = async (sessionId, limit, leaf) =>
  (await readJson(`/sessions/${id(sessionId)}/turns?limit=${limit}${leaf ? `&leaf=${id(leaf)}` : ""}`)).turns;
export const readTree = async (sessionId) => (await readJson(`/sessions/${id(sessionId)}/tree`)).turns;

/** The session's valid share links, without their URLs. */
export const listShares = async (sessionId) => (await readJson(`/sessions/${id(sessionId)}/shares`)).shares;
/** `options`: {leaf?, expire_days, passages}. The reply has the link's URL. */
export const createShare = (sessionId, options) => readJson(`/sessions/${id(sessionId)}/shares`, withJson("POST", options));
export const revokeShare = (sessionId, shareId) =>
  readJson(`/sessions/${id(sessionId)}/shares/${id(shareId)}`, { method: "DELETE" });
/** Imports a conversation in our own export format, as the file has it; all or nothing. */
export const importSession = (file) =>
  readJson("/sessions/import", { method: "POST", body: file, headers: { "Content-Type": "application/json" } });
/** Imports another product's export: returns what would be imported or, with `apply`, what was. */
export const importFile = (file, apply) => readJson(`/sessions/import/file?apply=${apply}`, { method: "POST", body: file });

/* The persona of a conversation. */

const address = (sessionId) => `/sessions/${id(sessionId)}`;

/** `persona`: {text, name?, document_id?, chunk_id?}. Returns the persona as stored. */
export const setPersona = async (sessionId, persona) =>
  (await readJson(`${address(sessionId)}/persona`, withJson("PUT", persona)))?.persona ?? null;
export const clearPersona = (sessionId) => readJson(`${address(sessionId)}/persona`, { method: "DELETE" });
/** Creates a conversation, which is listed at once, and returns its id. */
export const createSession = async () => (await readJson("/sessions", withJson("POST", {}))).session_id;
