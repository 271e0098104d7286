/** Creating a conversation with a persona, and finding out whether a question was lost on its way to the server. */

import { ApiError } from "../api/http.js";
import { createSession, deleteSession, listTurns, readSession, setPersona } from "../api/sessions.js";
import { hasTurn } from "../api/turns.js";
import { wordsFor } from "../persona/dialog.js";

const DELETION_MS = [300, 1000, 3000]; // deleting a conversation first stops its running answer, then deletes it

/** A question was not asked; `words` are the arguments of `setText` that say why. */
class NotAsked extends Error {
  constructor(words) {
    super(words[0]);
    this.words = words;
  }
}

/**
 * Creates a conversation with its persona and opens it. `move(id)` resolves to whether the user is there.
 * Throws NotAsked on failure, and leaves no empty conversation behind.
 */
export async function beginWithPersona(persona, move) {
  let id = null;
  try {
    id = await createSession();
    await setPersona(id, persona);
  } catch (error) {
    if (id) await deleteSession(id).catch(() => {});
    throw new NotAsked(wordsFor(error));
  }
  if (await move(id)) return;
  await deleteSession(id).catch(() => {});
  throw new NotAsked(["notAsked"]);
}

const NEWEST = 20; // turns: others may have asked in this conversation since

/** Whether `question` never reached the server; null if that cannot be determined now. */
export async function lostQuestion(sessionId, question) {
  if (!sessionId) return true; // there was no reply, not even the conversation's id
  try {
    return !(await listTurns(sessionId, NEWEST)).some((turn) => sameText(turn.question, question));
  } catch {
    return null;
  }
}

/**
 * Whether a failed or stopped turn does not exist on the server; null if that cannot be determined now. If it was not
 * stopped here, its conversation may be about to be deleted.
 */
export async function lostTurn({ turnId, status }, { stoppedHere }) {
  if (status !== "failed" && status !== "cancelled") return false;
  let lost = await neverArrived(turnId);
  for (const waitMs of status === "cancelled" && !stoppedHere ? DELETION_MS : []) {
    if (lost !== false) break;
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    lost = await neverArrived(turnId);
  }
  return lost;
}

async function neverArrived(turnId) {
  try {
    await hasTurn(turnId);
    return false;
  } catch (error) {
    return error instanceof ApiError && error.status < 500 ? true : null;
  }
}

/** Whether the conversation was deleted or has expired; an unreachable server does not count. */
export const isDeleted = (sessionId) => readSession(sessionId).then(() => false, (error) => error.status === 404);

/** Compares ignoring whitespace, because the server normalizes line breaks. */
const sameText = (one, other) => one.split(/\s+/).join(" ") === other.split(/\s+/).join(" ");
