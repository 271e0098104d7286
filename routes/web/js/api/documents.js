/** Documents, their chunks and jobs, and searching them, over HTTP. */

import { ApiError, address, begin, id, identity, readJson, renewKey, send, withJson } from "./http.js";

/** `page`: `status`, `source` and `tag` narrow; `cursor` is `next` of the page before. */
export const listDocuments = (page = {}) => readJson(`/documents?${query({ limit: 100, ...page })}`);
export const readDocument = (documentId) => readJson(`/documents/${id(documentId)}`);
export const readFileName = async (documentId) => (await readDocument(documentId))?.file_name ?? "";
export const changeDocument = (documentId, changes) =>
  readJson(`/documents/${id(documentId)}`, withJson("PATCH", changes));
/** The reply with its proof: what was searched afterwards, and what is left. */
export const deleteDocument = (documentId) => readJson(`/documents/${id(documentId)}`, { method: "DELETE" });
/** All of the guide that came with Wenmai: how many documents and chunks went, and how many traces are left. */
export const removeSample = () => readJson("/documents/sample", { method: "DELETE" });
export const listChunks = (documentId, cursor) =>
  readJson(`/documents/${id(documentId)}/chunks?${query({ limit: 50, cursor })}`);
/** What a list or a question can be limited to: [{source, documents}] and [{tag, documents}]. */
export const listSources = async () => (await readJson("/sources"))?.sources ?? [];
export const listTags = async () => (await readJson("/tags"))?.tags ?? [];
export const listJobs = async () => (await readJson("/jobs"))?.jobs ?? [];
export const followJob = (jobId, signal) => send(`/jobs/${id(jobId)}/stream`, { signal });

/**
 * Sends one file; `onProgress(bytes, of)` hears how much of the request is sent, which `signal` ends.
 * Raises ApiError (refused), TypeError (the connection broke) or AbortError.
 */
export async function uploadDocument(file, { onProgress, signal }, again = true) {
  const begun = begin("POST");
  const body = new FormData();
  body.append("file", file, file.name);
  const { status, reply } = await post("/documents", body, onProgress, signal);
  if (status >= 200 && status < 300) return reply;
  if (status === 401 && again && (await renewKey(begun))) return uploadDocument(file, { onProgress, signal }, false);
  throw new ApiError(status, reply?.error ?? {});
}

/** XMLHttpRequest, because fetch does not tell how much of a body is sent. */
function post(path, body, onProgress, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const request = new XMLHttpRequest();
    request.open("POST", address(path));
    for (const [name, value] of Object.entries(identity())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(loaded, total));
    request.addEventListener("load", () => resolve({ status: request.status, reply: parsed(request.responseText) }));
    request.addEventListener("error", () => reject(new TypeError("the connection broke")));
    request.addEventListener("abort", () => reject(signal.reason));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a proxy's page, say
  }
}

function query(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value));
}

/* What the knowledge base says: retrieval alone, what stands around a chunk, and which documents there are. */

const MOST_DOCUMENTS = 2000;

/** `body` as POST /search takes it. */
export const search = (body) => readJson("/search", withJson("POST", body));

/** A chunk with so many chunks before and after it, and its section. */
export const readSurroundings = (documentId, chunkId, before, after) =>
  readJson(`/documents/${id(documentId)}/chunks/${id(chunkId)}?before=${before}&after=${after}&section=true`);

/** The newest documents, as many as a person could look through. */
export async function allDocuments() {
  const documents = [];
  for (let cursor = ""; documents.length < MOST_DOCUMENTS; ) {
    const page = await readJson(`/documents?limit=500${cursor ? `&cursor=${id(cursor)}` : ""}`);
    documents.push(...(page?.documents ?? []));
    cursor = page?.next;
    if (!cursor) break;
  }
  return documents;
}
