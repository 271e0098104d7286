/** The reason for a failure in the user's language: by the error's code, else by its sentence. */

import { el, setText } from "../base/dom.js";

const BY_CODE = {
  body_too_large: "docWhyTooLarge", unsupported_media_type: "docWhyKind", empty_file: "docWhyEmpty",
  encrypted: "docWhyEncrypted", no_text: "docWhyNoText", encoding: "docWhyEncoding", archive_limit: "docWhyUnsafe",
  unsafe_xml: "docWhyUnsafe", too_complex: "docWhyTooComplex", unreadable_document: "docWhyUnreadable",
  invalid_form: "docWhyBroken", disk_full: "docWhyDiskFull", store_unavailable: "docWhyStore", not_stored: "docWhyStore",
  embedding_unavailable: "docWhyEmbedding", shutting_down: "docWhyShutdown", unavailable: "docWhyBusy",
  unauthorized: "docWhyKey", forbidden: "docWhyForbidden", unknown_document: "docWhyDeleted", not_found: "docWhyDeleted",
  invalid_request: "docWhyInvalid", invalid_field: "docWhyInvalid", internal: "docWhyInternal",
};
// A stored document has only the sentence, not the code.
const BY_SENTENCE = [
  [/password|copy protection/i, "docWhyEncrypted"], [/has no text|none of the book|picture/i, "docWhyNoText"],
  [/process that reads/i, "docWhyBusy"],
  [/encoding cannot/i, "docWhyEncoding"], [/file is empty/i, "docWhyEmpty"], [/not safe to/i, "docWhyUnsafe"],
  [/too much|too long to read|nested too deeply|too many parts|more than [\d,]+ cells/i, "docWhyTooComplex"],
  [/cannot be read[:;]|content is (something else|not text)|old binary format/i, "docWhyKind"],
  [/not a valid|damaged|cannot be recognised/i, "docWhyUnreadable"], [/stopped while/i, "docWhyInterrupted"],
  [/embedding|vector/i, "docWhyEmbedding"], [/stored|store /i, "docWhyStore"],
];

/** The text key for an error {code, message, status}; without a code or a known sentence, a generic one. */
export function reasonOf({ code = "", message = "" }) {
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code];
  return BY_SENTENCE.find(([pattern]) => pattern.test(message))?.[1] ?? (code ? "docWhyInternal" : "docFailed");
}

/** The same for a failed request, including broken connections, which have no code. */
export const reasonOfRequest = (error) => (error instanceof TypeError ? "docWhyOffline" : reasonOf(error));

/** The server's own sentence, collapsed; it may be more specific than ours. */
export function originalWords(message) {
  if (!message || /^HTTP \d+$/.test(message)) return null;
  return el("details", { class: "original" }, el("summary", { i18n: "docDetails" }), el("p", { lang: "en", text: message }));
}

export function showReason(node, reason) {
  const [key, vars] = [reason].flat();
  setText(node, key, vars);
  node.classList.add("failed");
}
