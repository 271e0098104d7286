/** `#/d/<document>/<chunk>`: a passage's address on this page, as the server links to it in answers. */

const ADDRESS = /^#\/d\/([\w-]+)\/([\w-]+)$/;

/** The passage that an address leads to, as {documentId, chunkId}; null for any other address. */
export function passageAt(address) {
  const [, documentId, chunkId] = ADDRESS.exec(address ?? "") ?? [];
  return chunkId ? { documentId, chunkId } : null;
}
