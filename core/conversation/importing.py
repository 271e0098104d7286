"""A conversation from elsewhere: validated as a whole and converted to turns before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from core.conversation.sessions import AHEAD_US, PersonaDraft
from core.conversation.turns import RewrittenQuestion, Summary, Turn, TurnStatus
from core.errors import BadRequestError
from core.images import SentImage
from core.text import preprocess_question, scrub

FOLLOWS = "follows"
"""The parent of a turn that names none: the preceding turn in the list."""
SECOND_US = 1_000_000


def imported_turn(question: str, answer: str, turn_id: str = "", **fields: Any) -> Turn:
    """Make a turn from an external source: `turn_id` is "", `created_us` 0 (unknown) and the parent FOLLOWS
    if it does not say; the parent is None for a root, or the turn_id of a turn in the same import. `fields`
    are any others of Turn; `plan_turns` sets the owner, the session and `seq`."""
    unknown = {"session_id": "", "owner": "", "created_us": 0, "status": TurnStatus.COMPLETED}
    rest = {"parent_turn_id": FOLLOWS, "model_id": "imported", **unknown, **fields}
    return Turn(turn_id=turn_id, question=question, answer=answer, **rest)


@dataclass(frozen=True, slots=True)
class ImportedPersona:
    draft: PersonaDraft
    persona_id: str | None = None
    updated_us: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """`title` None: taken from the first question. Missing times: those of the first and the last turn.
    `sent_images` by the index of their turn in the list."""

    owner: str
    turns: Sequence[Turn]
    session_id: str | None = None
    title: str | None = None
    hold: bool = False
    expire_days: int | None = None
    created_us: int | None = None
    updated_us: int | None = None
    persona: ImportedPersona | None = None
    sent_images: Mapping[int, tuple[SentImage, ...]] = field(default_factory=dict)


def plan_turns(
    session: ImportedSession, session_id: str, now_us: int, new_id: Callable[[], str]
) -> tuple[Turn, ...]:
    """Return the turns as they will be stored, in order, numbered by `seq`.

    Raises BadRequestError, which names the turn by its index in the list.
    """
    turns = session.turns
    ids = [turn.turn_id or new_id() for turn in turns]
    places = _places(ids)
    parents = _parents(turns, ids, places)
    _refuse_cycles(parents, ids, places)
    _refuse_future(turns, now_us)
    times = spaced_times([turn.created_us or None for turn in turns], now_us)
    placed = (
        replace(
            turn,
            turn_id=ids[at],
            session_id=session_id,
            owner=session.owner,
            parent_turn_id=parents[at],
            created_us=times[at],
            seq=at,
        )
        for at, turn in enumerate(turns)
    )
    return tuple([_turn(turn, places) for turn in placed])


def _refuse_future(turns: Sequence[Turn], now_us: int) -> None:
    """Such a turn would remain the newest: every question would continue from it."""
    for at, turn in enumerate(turns):
        if turn.created_us > now_us + AHEAD_US:
            raise BadRequestError(f"turns.{at}.timestamp: is in the future.")


def spaced_times(times: Sequence[int | None], now_us: int) -> list[int]:
    """Fill in missing times: a second apart and never later than the next known one; before the first known
    one, and if none is known, counted back (from now)."""
    known = [at for at, time in enumerate(times) if time is not None]
    filled = [time or 0 for time in times]
    if not known:
        return [now_us - (len(times) - 1 - at) * SECOND_US for at in range(len(times))]
    for at in range(known[0]):
        filled[at] = filled[known[0]] - (known[0] - at) * SECOND_US
    for before, after in pairwise([*known, len(times)]):
        step = SECOND_US
        if after < len(times) and filled[after] >= filled[before]:
            step = min(step, (filled[after] - filled[before]) // (after - before))
        for at in range(before + 1, after):
            filled[at] = filled[before] + (at - before) * step
    return [max(time, 1) for time in filled]


def _places(ids: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for at, turn_id in enumerate(ids):
        if places.setdefault(turn_id, at) != at:
            raise BadRequestError(f"turns.{at}.turn_id: given twice, first by turns.{places[turn_id]}.")
    return places


def _parents(turns: Sequence[Turn], ids: Sequence[str], places: Mapping[str, int]) -> list[str | None]:
    parents: list[str | None] = []
    for at, turn in enumerate(turns):
        parent = turn.parent_turn_id
        if parent == FOLLOWS:
            parent = ids[at - 1] if at else None
        elif parent is not None and parent not in places:
            raise BadRequestError(f"turns.{at}.parent_turn_id: no turn of this import has this id.")
        parents.append(parent)
    return parents


def _refuse_cycles(parents: Sequence[str | None], ids: Sequence[str], places: Mapping[str, int]) -> None:
    ends_well: set[str] = set()
    for turn_id in ids:
        path: dict[str, None] = {}
        at: str | None = turn_id
        while at is not None and at not in ends_well:
            if at in path:
                raise BadRequestError(f"turns.{places[at]}.parent_turn_id: the parents form a cycle.")
            path[at] = None
            at = parents[places[at]]
        ends_well.update(path)


def _turn(turn: Turn, places: Mapping[str, int]) -> Turn:
    """Check and scrub a turn for storage."""
    at = turn.seq
    question = scrub(turn.question)
    if not preprocess_question(question):
        raise BadRequestError(f"turns.{at}.question: must not be empty.")
    _check_summary(at, turn.summary, places)
    _check_rewritten(at, turn.rewritten, places)
    answer, thinking = scrub(turn.answer), scrub(turn.thinking)
    return replace(turn, question=question, answer=answer, thinking=thinking)


def _check_summary(at: int, summary: Summary | None, places: Mapping[str, int]) -> None:
    if summary is None:
        return
    named = [summary.start, *summary.covers, *([summary.previous] if summary.previous else [])]
    if any(turn_id not in places for turn_id in named):
        raise BadRequestError(f"turns.{at}.summary: names a turn that is not in this import.")


def _check_rewritten(at: int, rewritten: RewrittenQuestion | None, places: Mapping[str, int]) -> None:
    if rewritten is not None and any(turn_id not in places for turn_id in rewritten.turn_ids):
        raise BadRequestError(f"turns.{at}.rewritten_question: names a turn that is not in this import.")
