/** A stored turn on the page, and how it is asked again when it did not get its answer. */

import { TurnView } from "../turn/turn-view.js";

/**
 * `again(view, body)` asks the same turn once more, `ask(question)` a new one: for a turn that did not keep what
 * it was asked with.
 */
export function storedView(turn, acts, { again, ask }) {
  const view = TurnView.stored(turn, acts);
  const body = storedRequest(turn);
  const onRetry = () => (body ? again(view, body) : ask(turn.user_query));
  if (turn.status === "failed" || turn.status === "interrupted") view.showError({ message: `note_${turn.status}`, onRetry });
  return view;
}

/** The request's body, without its place, which the server knows. */
export function storedRequest(turn) {
  return turn.request && {
    question: turn.user_query,
    turn_id: turn.turn_id,
    session_id: turn.session_id,
    model_id: turn.model_id,
    ...turn.request,
    ...(turn.filters ? { filters: turn.filters } : {}),
    stream_format: "prefix",
  };
}
