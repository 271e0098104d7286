/** Deleting a document: asked first, and said afterwards what went and what was checked. */

import { confirmRemoval } from "../base/dialogs.js";
import { deleteDocument } from "../api/documents.js";
import { tell } from "../base/bus.js";
import { reasonOfRequest } from "./reasons.js";

/**
 * Resolves to null when the reader thought better of it, else to {gone, said}: `said` are [key, vars] of
 * sentences to show one after the other.
 */
export async function removeDocument(document) {
  const { document_id: id, file_name: name, chunk_count: n } = document;
  if (!(await confirmRemoval("deleteDocument", { name, n }))) return null;
  try {
    const said = report(document, await deleteDocument(id));
    tell("document-gone", { document_id: id });
    return { gone: true, said };
  } catch (error) {
    const gone = error.status === 404; // somebody else was quicker
    if (gone) tell("document-gone", { document_id: id });
    return { gone, said: gone ? [["docDeleted", { name, n }]] : [["docDeleteFailed", { name }], [reasonOfRequest(error)]] };
  }
}

function report({ file_name: name, chunk_count: n }, reply) {
  const { proof, source } = reply ?? {};
  const left = proof ? proof.hits : 0;
  const quoted = proof?.quoted_in?.length ?? 0;
  const copies = proof?.backups?.filter(({ holds }) => holds !== "no").length ?? 0;
  return [
    ["docDeleted", { name, n }],
    proof && (left ? ["docProofLeft", { n: left }] : proof.complete ? ["docProofClean"] : ["docProofPartial"]),
    quoted && ["docProofQuoted", { n: quoted }],
    copies && ["docProofBackups", { n: copies }],
    source && ["docComesBack", { source }],
  ].filter(Boolean);
}
