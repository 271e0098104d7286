/**
 * What one part of the page tells the others, without knowing them.
 *
 * "quote" {file_name, text}: put the passage into the question box as dialogue.
 * "persona" {file_name, text, document_id, chunk_id}: make the passage this conversation's persona.
 * "open-passage" {documentId, chunkId}: show it in its document.
 * "open-library": choose from the library. "open-memory" {memoryId, content}: show it in the memory panel, to be changed or forgotten.
 * "edit-last": edit the newest question. "filter" {tags, document_ids, names}: ask only of these
 * documents; `names` are theirs, in the same order.
 * "documents-read" {document_ids}: the list of documents was read anew, its first page at least. "document-deleted"
 * {document_id}: it was deleted. "tags-read" {tags}: those that documents have now, at most as many as the server lists.
 * "approval" {turnId, asks}: that turn begins to wait for the reader's word on a tool, or no longer does.
 * "choices" {model_id, thinking, tools, …}: what a new conversation begins with.
 * "server-back": it answers again, after a request that found nobody.
 * "language": the reader chose the other language. "key-changed": an access key where there was none, what was
 * refused may be read now. "owner-changed": the key of another, or none: nothing of the former's may stay.
 */
const bus = new EventTarget();

export const tell = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));
export const hear = (name, listener) => bus.addEventListener(name, ({ detail }) => listener(detail));
