"""Which turns are old enough to go, each by the limit of its session. Nothing is changed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from qdrant_client import models

from core.expiry import Age, AgeLimits, age_of
from core.turns import TurnStatus
from services.retention.session_records import AT_ONCE
from services.turn_store import TurnStore, equals

UNPARSABLE_NAMED = 20

RUNNING = equals("status", TurnStatus.RUNNING.value)
DATED = models.FieldCondition(key="created_us", range=models.Range(gt=0))
_FIELDS = ["session_id", "created_us", "timestamp"]


@dataclass(frozen=True, slots=True)
class OldTurn:
    point: models.ExtendedPointId
    session_id: str


@dataclass(frozen=True, slots=True)
class OldTurns:
    """Turns with one cutoff. `dated` ones have created_us, by which the store compares them once more."""

    dated: bool
    cutoff_us: int
    turns: list[OldTurn] = field(default_factory=list)

    def among(self, points: models.HasIdCondition) -> models.Filter:
        """Those of the points that are old still, and not running."""
        if not self.dated:
            return models.Filter(must=[points], must_not=[RUNNING, DATED])
        old = models.FieldCondition(key="created_us", range=models.Range(gt=0, lt=self.cutoff_us))
        return models.Filter(must=[points, old], must_not=[RUNNING])


@dataclass(slots=True)
class Found:
    """`held` counts old turns of sessions on hold; of `unparsable` ones the first are named."""

    batches: dict[tuple[bool, int], OldTurns] = field(default_factory=dict)
    sessions: Counter[str] = field(default_factory=Counter)
    held: int = 0
    unparsable: int = 0
    unparsable_ids: list[str] = field(default_factory=list)

    def add(self, record: models.Record, limits: AgeLimits, *, dated: bool) -> None:
        payload = record.payload or {}
        session_id = str(payload.get("session_id", ""))
        cutoff_us = limits.cutoff_of(session_id)
        match age_of(payload.get("created_us"), payload.get("timestamp"), cutoff_us):
            case Age.UNPARSABLE:
                self.unparsable += 1
                if len(self.unparsable_ids) < UNPARSABLE_NAMED:
                    self.unparsable_ids.append(str(record.id))
            case Age.EXPIRED if session_id in limits.held:
                self.held += 1
            case Age.EXPIRED:
                self.sessions[session_id] += 1
                batch = self.batches.setdefault((dated, cutoff_us), OldTurns(dated, cutoff_us))
                batch.turns.append(OldTurn(record.id, session_id))


async def find_expired(turns: TurnStore, limits: AgeLimits) -> Found:
    """Every turn is judged by core.expiry; the store only leaves out what is surely kept.

    Raises StoreUnavailableError.
    """
    found = Found()
    async for record in _dated(turns, limits):
        found.add(record, limits, dated=True)
    undated = models.Filter(must_not=[RUNNING, DATED])
    async for record in turns.scroll(undated, with_payload=_FIELDS):
        found.add(record, limits, dated=False)
    return found


async def _dated(turns: TurnStore, limits: AgeLimits) -> AsyncIterator[models.Record]:
    """Those older than the general limit, then those that only their session's own limit makes old."""
    async for record in _began(turns, models.Range(gt=0, lt=limits.cutoff_us)):
        yield record
    stricter = limits.stricter()
    for start in range(0, len(stricter), AT_ONCE):
        page = stricter[start : start + AT_ONCE]
        between = models.Range(gt=0, gte=limits.cutoff_us, lt=max(map(limits.cutoff_of, page)))
        of_page = models.FieldCondition(key="session_id", match=models.MatchAny(any=page))
        async for record in _began(turns, between, of_page):
            yield record


def _began(
    turns: TurnStore, when: models.Range, *where: models.FieldCondition
) -> AsyncIterator[models.Record]:
    began = models.FieldCondition(key="created_us", range=when)
    return turns.scroll(models.Filter(must=[began, *where], must_not=[RUNNING]), with_payload=_FIELDS)
