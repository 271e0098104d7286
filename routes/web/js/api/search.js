/** What the knowledge base says: retrieval alone, what stands around a chunk, and which documents there are. */

import { id, readJson, withJson } from "./http.js";

const MOST_DOCUMENTS = 2000;

/** `body` as POST /search takes it. */
export const search = (body) => readJson("/search", withJson("POST", body));

/** A chunk with so many chunks before and after it, and its section. */
export const readSurroundings = (documentId, chunkId, before, after) =>
  readJson(`/documents/${id(documentId)}/chunks/${id(chunkId)}?before=${before}&after=${after}&section=true`);

export const readDocument = (documentId) => readJson(`/documents/${id(documentId)}`);

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
