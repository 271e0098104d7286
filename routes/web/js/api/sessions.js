/** Sessions over HTTP. */

import { id, readJson, send, withJson } from "./http.js";

/** The newest, or those before the cursor `before`; with `query`, only those whose title contains it. */
export function listSessions({ before, query } = {}) {
  const from = before ? `&before=${id(before)}` : "";
  return readJson(`/sessions?limit=50${from}${query ? `&q=${id(query)}` : ""}`);
}
export const readSession = (sessionId) => readJson(`/sessions/${id(sessionId)}`);
/** `changes`: {title} or {hold}. */
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
