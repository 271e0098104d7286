"""A conversation from elsewhere: checked as a whole and made into turns before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from core.conversation.branch import AHEAD_US
from core.conversation.persona import PersonaDraft
from core.conversation.turns import (
    AskedWith,
    Feedback,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
)
from core.errors import BadRequestError
from core.knowledge import Citation, KnowledgeFilter
from core.text import preprocess_question, scrub

FOLLOWS = "follows"
"""The parent of a turn that names none: the turn before it in the list."""
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """`created_us` None: not known. `parent`: FOLLOWS, None for a root, or the turn_id of an imported
    turn."""

    question: str
    answer: str
    turn_id: str | None = None
    created_us: int | None = None
    parent: str | None = FOLLOWS
    status: TurnStatus = TurnStatus.COMPLETED
    thinking: str = ""
    sources: tuple[Citation, ...] = ()
    model_id: str = "imported"
    command: str = ""
    token_count: int = 0
    usage: Usage = field(default_factory=Usage)
    timings_ms: dict[str, float] = field(default_factory=dict)
    finish_reason: str = ""
    summary: Summary | None = None
    filters: KnowledgeFilter = field(default_factory=KnowledgeFilter)
    request: AskedWith | None = None
    feedback: Feedback | None = None
    warnings: tuple[TurnWarning, ...] = ()
    rewritten: RewrittenQuestion | None = None


@dataclass(frozen=True, slots=True)
class ImportedPersona:
    draft: PersonaDraft
    persona_id: str | None = None
    updated_us: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """`title` None: taken from the first question. Absent times: those of the first and the last turn."""

    owner: str
    turns: Sequence[ImportedTurn]
    session_id: str | None = None
    title: str | None = None
    hold: bool = False
    expire_days: int | None = None
    created_us: int | None = None
    updated_us: int | None = None
    persona: ImportedPersona | None = None


def plan_turns(
    session: ImportedSession, session_id: str, now_us: int, new_id: Callable[[], str]
) -> tuple[Turn, ...]:
    """The turns as they will be stored, in the given order, which `seq` counts.

    Raises BadRequestError, which names the turn by its place in the list.
    """
    ids = [turn.turn_id or new_id() for turn in session.turns]
    places = _places(ids)
    parents = _parents(session.turns, ids, places)
    _refuse_cycles(parents, ids, places)
    _refuse_future(session.turns, now_us)
    times = spaced_times([turn.created_us for turn in session.turns], now_us)
    return tuple(
        [
            _turn(session.owner, session_id, at, each, ids[at], parents[at], times[at], places)
            for at, each in enumerate(session.turns)
        ]
    )


def _refuse_future(turns: Sequence[ImportedTurn], now_us: int) -> None:
    """Such a turn would stay the newest: every question would go on from it."""
    for at, turn in enumerate(turns):
        if turn.created_us is not None and turn.created_us > now_us + AHEAD_US:
            raise BadRequestError(f"turns.{at}.timestamp: lies in the future.")


def spaced_times(times: Sequence[int | None], now_us: int) -> list[int]:
    """Times for those that have none: a second apart and never later than the next known one; before the
    first known one, and when none is known, counted back (from now)."""
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


def _parents(
    turns: Sequence[ImportedTurn], ids: Sequence[str], places: Mapping[str, int]
) -> list[str | None]:
    parents: list[str | None] = []
    for at, turn in enumerate(turns):
        parent = turn.parent
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


def _turn(
    owner: str,
    session_id: str,
    at: int,
    source: ImportedTurn,
    turn_id: str,
    parent: str | None,
    created_us: int,
    places: Mapping[str, int],
) -> Turn:
    question, answer = scrub(source.question), scrub(source.answer)
    if not preprocess_question(question):
        raise BadRequestError(f"turns.{at}.question: must not be empty.")
    _check_summary(at, source.summary, places)
    _check_rewritten(at, source.rewritten, places)
    return Turn(
        turn_id=turn_id,
        session_id=session_id,
        owner=owner,
        user_query=question,
        created_us=created_us,
        status=source.status,
        parent_turn_id=parent,
        assistant_response=answer,
        thinking=scrub(source.thinking),
        sources=source.sources,
        seq=at,
        model_id=source.model_id,
        token_count=source.token_count,
        usage=source.usage,
        timings_ms=source.timings_ms,
        finish_reason=source.finish_reason,
        summary=source.summary,
        command=source.command,
        filters=source.filters,
        request=source.request,
        feedback=source.feedback,
        warnings=source.warnings,
        rewritten=source.rewritten,
    )


def _check_summary(at: int, summary: Summary | None, places: Mapping[str, int]) -> None:
    if summary is None:
        return
    named = [summary.start, *summary.covers, *([summary.previous] if summary.previous else [])]
    if any(turn_id not in places for turn_id in named):
        raise BadRequestError(f"turns.{at}.summary: names a turn that is not in this import.")


def _check_rewritten(at: int, rewritten: RewrittenQuestion | None, places: Mapping[str, int]) -> None:
    if rewritten is not None and any(turn_id not in places for turn_id in rewritten.turn_ids):
        raise BadRequestError(f"turns.{at}.rewritten_question: names a turn that is not in this import.")
