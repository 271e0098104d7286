/**
 * The page's event bus: its parts publish and subscribe to these events without knowing each other.
 *
 * "quote" {file_name, text}: insert the passage into the question box as a quotation.
 * "persona" {file_name, text, document_id, chunk_id}: make the passage this conversation's persona.
 * "open-passage" {documentId, chunkId}: show the passage in its document.
 * "open-library": open the library. "open-memory" {memoryId, content}: show it in the memory panel, to be edited or forgotten.
 * "edit-last": edit the newest question. "filter" {tags, document_ids, names}: limit questions to these
 * documents; `names` has their names, in the same order.
 * "documents-read" {document_ids}: the list of documents was reloaded, at least its first page. "document-deleted"
 * {document_id}: it was deleted. "tags-read" {tags}: the tags in use, at most as many as the server lists.
 * "upload" [files]: add them to the documents.
 * "approval" {turnId, asks}: the turn starts or stops waiting for the user to approve a tool call.
 * "choices" {model_id, thinking, tools, …}: the defaults of a new conversation.
 * "server-back": the server can be reached again after a failed request.
 * "language": the user switched the language. "key-changed": there was no access key and now there is one, so what
 * was refused may be readable now. "owner-changed": another owner's key, or none: no former data may stay.
 */
const bus = new EventTarget();

export const publish = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));
export const subscribe = (name, listener) => bus.addEventListener(name, ({ detail }) => listener(detail));
