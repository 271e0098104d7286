/** `#/d/<document>/<chunk>`: a passage's address in this page, as the server links to it in an answer. */

const ADDRESS = /^#\/d\/([\w-]+)\/([\w-]+)$/;

/** Which passage an address leads to, as {documentId, chunkId}; null for any other address. */
export function passageAt(address) {
  const [, documentId, chunkId] = ADDRESS.exec(address ?? "") ?? [];
  return chunkId ? { documentId, chunkId } : null;
}
