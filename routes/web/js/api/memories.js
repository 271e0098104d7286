/** HTTP calls for memories. */

import { id, readJson, withJson } from "./http.js";

/** {memories, next, on}: newest first, older than `before`; with `query`, only those that contain it. */
export function listMemories({ before, query } = {}) {
  const from = before ? `&before=${id(before)}` : "";
  return readJson(`/memories?limit=50${from}${query ? `&q=${id(query)}` : ""}`);
}
export const addMemory = (content) => readJson("/memories", withJson("POST", { content }));
export const changeMemory = (memoryId, content) => readJson(`/memories/${id(memoryId)}`, withJson("PATCH", { content }));
export const deleteMemory = (memoryId) => readJson(`/memories/${id(memoryId)}`, { method: "DELETE" });
export const switchMemory = async (on) => (await readJson("/memories/switch", withJson("PUT", { on }))).on;
/** The memories that the turn was given and that still exist. */
export const memoriesOfTurn = async (turnId) => (await readJson(`/turns/${id(turnId)}/memories`)).memories;
