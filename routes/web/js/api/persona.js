/** A conversation's persona over HTTP. */

import { id, readJson, send, withJson } from "./http.js";

const address = (sessionId) => `/sessions/${id(sessionId)}`;

/** null when there is none. */
export const readPersona = async (sessionId) => (await readJson(address(sessionId)))?.persona ?? null;
/** `persona`: {text, name?, document_id?, chunk_id?}. Gives it as it is kept. */
export const setPersona = async (sessionId, persona) =>
  (await readJson(`${address(sessionId)}/persona`, withJson("PUT", persona)))?.persona ?? null;
export const clearPersona = (sessionId) => readJson(`${address(sessionId)}/persona`, { method: "DELETE" });
/** A new conversation's id; it is in the list at once. */
export const createSession = async () => (await readJson("/sessions", withJson("POST", {}))).session_id;
/** Refused when there is none, or no key for it, which is not asked for then. */
export const hasTurn = (turnId) => send(`/turns/${id(turnId)}`, {}, false);
export const readFileName = async (documentId) => (await readJson(`/documents/${id(documentId)}`))?.file_name ?? "";
