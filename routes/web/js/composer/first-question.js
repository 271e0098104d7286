/** What comes before a question is asked, and after a page went away in the middle of asking. */

import { ApiError } from "../api/http.js";
import { createSession, deleteSession, listTurns, readSession, setPersona } from "../api/sessions.js";
import { hasTurn } from "../api/turns.js";
import { wordsFor } from "../persona/dialog.js";

const DELETION_MS = [300, 1000, 3000]; // a conversation's running answer is stopped first, then it is deleted

/** Why a question was not asked; `words` as `setText` takes them. */
class NotAsked extends Error {
  constructor(words) {
    super(words[0]);
    this.words = words;
  }
}

/**
 * Makes the conversation with its persona and moves there. `move(id)` says whether the reader is there then.
 * Raises NotAsked, and leaves no empty conversation behind.
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

/** Whether the server never got `question`; null when that cannot be known now. */
export async function lostQuestion(sessionId, question) {
  if (!sessionId) return true; // it had got no answer, not even its conversation's id
  try {
    return !(await listTurns(sessionId)).some((turn) => sameText(turn.question, question));
  } catch {
    return null;
  }
}

/**
 * Whether the server has nothing of a turn that failed, or was stopped; null when that cannot be known now. What
 * was not stopped here may be about to be deleted.
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

/** Whether that conversation was deleted, or has expired; not reached is not gone. */
export const isDeleted = (sessionId) => readSession(sessionId).then(() => false, (error) => error.status === 404);

/** The server brings line breaks to one form. */
const sameText = (one, other) => one.split(/\s+/).join(" ") === other.split(/\s+/).join(" ");
