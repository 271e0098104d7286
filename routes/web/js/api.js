/** The server's HTTP API. Every refusal becomes an ApiError; a broken connection stays a TypeError. */

const KEY = "wenmai.key";

export class ApiError extends Error {
  constructor(status, { code = "", message = "", retryable = false, request_id = "" } = {}) {
    super(message || `HTTP ${status}`);
    Object.assign(this, { status, code, retryable, requestId: request_id });
  }
}

/** Asks the reader for an access key; set by the app. Resolves to the key, or null when declined. */
let askForKey = async () => null;
export const onKeyNeeded = (ask) => (askForKey = ask);

async function send(path, options = {}, mayAsk = true) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  if (response.status === 401 && mayAsk) {
    const given = await askForKey(key);
    if (given) {
      sessionStorage.setItem(KEY, given);
      return send(path, options, false);
    }
  }
  throw await refusal(response);
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body?.error ?? {});
}

const readJson = async (path, options) => {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json().catch(() => null);
};
const withJson = (method, body) => ({
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});
const id = encodeURIComponent;

export const askQuestion = (body, signal) =>
  send("/knowledge_chat_conversation", { ...withJson("POST", body), signal });
export const resumeTurn = (turnId, after, signal) =>
  send(`/turns/${id(turnId)}/stream?after=${after}`, { signal });
export const stopTurn = (turnId) => send(`/turns/${id(turnId)}/stop`, { method: "POST" });
export const readTurn = (turnId) => readJson(`/turns/${id(turnId)}`);
export const readPrompt = (turnId) => readJson(`/turns/${id(turnId)}/prompt`);

export const listSessions = (before) => readJson(`/sessions?limit=50${before ? `&before=${id(before)}` : ""}`);
/** The branch that ends in `leaf`; without it, the newest. */
export const listTurns = async (sessionId, leaf) =>
  (await readJson(`/sessions/${id(sessionId)}/turns${leaf ? `?leaf=${id(leaf)}` : ""}`)).turns;
export const readTree = async (sessionId) => (await readJson(`/sessions/${id(sessionId)}/tree`)).turns;
export const renameSession = (sessionId, title) =>
  readJson(`/sessions/${id(sessionId)}`, withJson("PATCH", { title }));
export const deleteSession = (sessionId) => send(`/sessions/${id(sessionId)}`, { method: "DELETE" });

export const listModels = () => readJson("/models");
export const publicSettings = () => readJson("/settings/public");

export const listDocuments = (cursor) =>
  readJson(`/documents?limit=100${cursor ? `&cursor=${id(cursor)}` : ""}`);
export const deleteDocument = (documentId) => send(`/documents/${id(documentId)}`, { method: "DELETE" });
export const readJob = (jobId) => readJson(`/jobs/${id(jobId)}`);
export const listJobs = async () => (await readJson("/jobs")).jobs;
export function uploadDocument(file) {
  const body = new FormData();
  body.append("file", file, file.name);
  return readJson("/documents", { method: "POST", body });
}
