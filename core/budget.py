"""Fit the parts of a prompt into the model's window: the oldest goes first, whole turns only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.knowledge import Candidate
from core.tokens import estimate_tokens
from core.turns import Turn

MESSAGE_OVERHEAD = 8  # role and separators of one message, in tokens, for the templates in use


@dataclass(frozen=True, slots=True)
class Fitted:
    """What stays; `dropped` counts the turns and candidates that had to go."""

    relevant: tuple[Turn, ...]
    recent: tuple[Turn, ...]
    candidates: tuple[Candidate, ...]
    dropped: int


def turn_tokens(turn: Turn) -> int:
    return estimate_tokens(turn.user_query) + estimate_tokens(turn.assistant_response) + 2 * MESSAGE_OVERHEAD


def candidate_tokens(candidate: Candidate) -> int:
    return (
        estimate_tokens(candidate.chunk.text)
        + estimate_tokens(candidate.chunk.heading)
        + 4 * MESSAGE_OVERHEAD
    )


def fits_alone(system: str, question: str, budget_tokens: int) -> bool:
    """Whether system prompt and question, which never go, fit at all."""
    return estimate_tokens(system) + estimate_tokens(question) + 2 * MESSAGE_OVERHEAD <= budget_tokens


def fit(
    system: str,
    relevant: Sequence[Turn],
    recent: Sequence[Turn],
    candidates: Sequence[Candidate],
    question: str,
    budget_tokens: int,
) -> Fitted:
    """Drop relevant turns oldest first, then candidates worst first down to three, then recent turns
    oldest first, then the last candidates, until the estimate is within `budget_tokens`."""
    older, newer, kept = list(relevant), list(recent), list(candidates)
    used = estimate_tokens(system) + estimate_tokens(question) + 4 * MESSAGE_OVERHEAD
    used += sum(map(turn_tokens, [*older, *newer])) + sum(map(candidate_tokens, kept))
    dropped = 0
    while used > budget_tokens and (older or newer or kept):
        if older:
            used -= turn_tokens(older.pop(0))
        elif len(kept) > 3 or not newer:
            used -= candidate_tokens(kept.pop())
        else:
            used -= turn_tokens(newer.pop(0))
        dropped += 1
    return Fitted(tuple(older), tuple(newer), tuple(kept), dropped)
