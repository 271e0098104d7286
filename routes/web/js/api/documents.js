/** HTTP calls for documents, their chunks and jobs, and search. */

import { ApiError, address, id, identity, readJson, renewKey, requestContext, send, withJson } from "./http.js";

/** `page`: `status`, `source` and `tag` filter; `cursor` is the `next` of the previous page. */
export const listDocuments = (page = {}) => readJson(`/documents?${query({ limit: 100, ...page })}`);
export const readDocument = (documentId) => readJson(`/documents/${id(documentId)}`);
export const readFileName = async (documentId) => (await readDocument(documentId))?.file_name ?? "";
export const changeDocument = (documentId, changes) =>
  readJson(`/documents/${id(documentId)}`, withJson("PATCH", changes));
/** Returns the reply with its proof: what was searched after the deletion, and what is left. */
export const deleteDocument = (documentId) => readJson(`/documents/${id(documentId)}`, { method: "DELETE" });
/** Deletes the bundled guide; returns how many documents and chunks were deleted and how many traces are left. */
export const removeSample = () => readJson("/documents/sample", { method: "DELETE" });
export const listChunks = (documentId, cursor) =>
  readJson(`/documents/${id(documentId)}/chunks?${query({ limit: 50, cursor })}`);
/** The available filters for a list or a question: [{source, documents}] and [{tag, documents}]. */
export const listSources = async () => (await readJson("/sources"))?.sources ?? [];
export const listTags = async () => (await readJson("/tags"))?.tags ?? [];
export const listJobs = async () => (await readJson("/jobs"))?.jobs ?? [];
export const followJob = (jobId, signal) => send(`/jobs/${id(jobId)}/stream`, { signal });

/**
 * Uploads one file; `onProgress(bytes, of)` reports how much of the request is sent, `signal` aborts it.
 * Throws ApiError (refused), TypeError (the connection broke) or AbortError.
 */
export async function uploadDocument(file, { onProgress, signal }, again = true) {
  const begun = requestContext("POST");
  const body = new FormData();
  body.append("file", file, file.name);
  const { status, reply } = await post("/documents", body, onProgress, signal);
  if (status >= 200 && status < 300) return reply;
  if (status === 401 && again && (await renewKey(begun))) return uploadDocument(file, { onProgress, signal }, false);
  throw new ApiError(status, reply?.error ?? {});
}

/** Uses XMLHttpRequest because fetch does not report upload progress. */
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
    return null; // for example a proxy's error page
  }
}

function query(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value));
}

/* Queries to the knowledge base: retrieval only, a chunk's surroundings, and the list of documents. */

const MAX_DOCUMENTS = 2000;

/** `body`: that of POST /search. */
export const search = (body) => readJson("/search", withJson("POST", body));

/** A chunk with its section and the given number of chunks before and after it. */
export const readSurroundings = (documentId, chunkId, before, after) =>
  readJson(`/documents/${id(documentId)}/chunks/${id(chunkId)}?before=${before}&after=${after}&section=true`);

/** The newest documents, as many as a person could reasonably look through. */
export async function allDocuments() {
  const documents = [];
  for (let cursor = ""; documents.length < MAX_DOCUMENTS; ) {
    const page = await readJson(`/documents?limit=500${cursor ? `&cursor=${id(cursor)}` : ""}`);
    documents.push(...(page?.documents ?? []));
    cursor = page?.next;
    if (!cursor) break;
  }
  return documents;
}
