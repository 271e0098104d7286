"""Expiry: which turns are old enough to go, and the report of what went."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client import models

from core.failpoints import failpoint
from core.moments import LATEST_ZONE, parse_time
from core.turns import TurnStatus, rfc3339
from services.store import VectorStore
from services.turn_store import PAGE, TurnStore, equals
from services.turn_traces import TurnTraces

DAY_US = 86_400_000_000
CHUNK = 500

_RUNNING = equals("status", TurnStatus.RUNNING.value)
_ON_HOLD = equals("hold", True)
_DATED = models.FieldCondition(key="created_us", range=models.Range(gt=0))


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """`matched` turns are older than `cutoff` (RFC 3339, UTC); `deleted` is 0 in a dry run.

    `sessions` counts the matched turns by session. `unparsable` turns have no time that could be read, and
    are kept; so are the `held` ones, old turns of a session on hold. `sessions_removed` had no turn left.
    """

    cutoff: str
    days: int
    dry_run: bool
    total_before: int
    matched: int
    deleted: int
    sessions: dict[str, int] = field(default_factory=dict)
    total_after: int = 0
    unparsable: int = 0
    held: int = 0
    sessions_removed: int = 0


class SessionRecords:
    """The sessions collection, as far as expiry is concerned."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def held(self) -> frozenset[str]:
        """Ids of the sessions that are kept from expiry."""
        return frozenset([str(record.id) async for record in self._scroll(models.Filter(must=[_ON_HOLD]))])

    async def remove_empty(self, turns: TurnStore, cutoff_us: int) -> int:
        """Erase those that have no turn left and began none since the cutoff: their title is a question."""
        quiet = models.FieldCondition(key="updated_us", range=models.Range(lt=cutoff_us))
        removed = 0
        for record in [each async for each in self._scroll(models.Filter(must=[quiet], must_not=[_ON_HOLD]))]:
            session_id = str((record.payload or {}).get("session_id", record.id))
            if await turns.count(models.Filter(must=[equals("session_id", session_id)])) == 0:
                # Asked again by the store: a turn may have begun, or the session been held, meanwhile.
                wanted = models.Filter(must=[_among([record.id]), quiet], must_not=[_ON_HOLD])
                await self._store.delete(self._collection, models.FilterSelector(filter=wanted))
                removed += 1
        return removed

    async def _scroll(self, wanted: models.Filter) -> AsyncIterator[models.Record]:
        offset: Any = None
        while True:
            records, offset = await self._store.scroll(
                self._collection, scroll_filter=wanted, limit=PAGE, offset=offset, with_payload=["session_id"]
            )
            for record in records:
                yield record
            if offset is None:
                return


@dataclass(frozen=True, slots=True)
class _Expired:
    """Points of one kind that are old, each with its session; `kind` is asked again when they are deleted."""

    kind: models.Filter
    points: list[tuple[models.ExtendedPointId, str]]


async def expire_turns(
    turns: TurnStore,
    now_us: int,
    days: int,
    *,
    dry_run: bool,
    records: SessionRecords | None = None,
    traces: TurnTraces | None = None,
) -> ExpiryReport:
    """Delete exactly the turns with created_us < now − days, in chunks; running ones and held sessions stay.

    A turn of an earlier version, without created_us, goes by its timestamp; when that names no zone, it
    goes once it is old in every zone. A turn whose time cannot be read is kept and counted. Children of
    deleted turns read as roots. With `records`, sessions on hold are spared and emptied ones leave the list;
    with `traces`, what else remembers an expired turn goes with it.
    Raises ValueError if days < 1: a mistaken 0 must not empty the store.
    """
    if days < 1:
        raise ValueError("days must be at least 1")
    cutoff_us = now_us - days * DAY_US
    held = await records.held() if records else frozenset()
    total = await turns.count()
    dated = await _find_dated(turns, cutoff_us)
    undated, unparsable = await _find_undated(turns, cutoff_us)
    spared = [session for each in (dated, undated) for _, session in each.points if session in held]
    old = [_without(each, held) for each in (dated, undated)]
    if traces is not None and not dry_run:
        await traces.erase(_by_session(old))
        await traces.expire_log(cutoff_us, held)
        failpoint("expiry.traces")
    deleted = 0 if dry_run else sum([await _delete(turns, each) for each in old])
    removed = await records.remove_empty(turns, cutoff_us) if records and not dry_run else 0
    sessions = Counter(session for each in old for _, session in each.points)
    return ExpiryReport(
        cutoff=rfc3339(max(cutoff_us, 0)),
        days=days,
        dry_run=dry_run,
        total_before=total,
        matched=sessions.total(),
        deleted=deleted,
        sessions=dict(sessions),
        total_after=await turns.count(),
        unparsable=unparsable,
        held=len(spared),
        sessions_removed=removed,
    )


async def _find_dated(turns: TurnStore, cutoff_us: int) -> _Expired:
    old = models.FieldCondition(key="created_us", range=models.Range(gt=0, lt=cutoff_us))
    kind = models.Filter(must=[old], must_not=[_RUNNING])
    found = turns.scroll(kind, with_payload=["session_id"])
    return _Expired(kind, [(record.id, _session_of(record)) async for record in found])


async def _find_undated(turns: TurnStore, cutoff_us: int) -> tuple[_Expired, int]:
    """Turns without created_us that are old by their timestamp, and how many have none that can be read."""
    kind = models.Filter(must_not=[_RUNNING, _DATED])
    points: list[tuple[models.ExtendedPointId, str]] = []
    unparsable = 0
    async for record in turns.scroll(kind, with_payload=["session_id", "timestamp"]):
        created_us = parse_time(str((record.payload or {}).get("timestamp", "")), LATEST_ZONE)
        if created_us is None:
            unparsable += 1
        elif created_us < cutoff_us:
            points.append((record.id, _session_of(record)))
    return _Expired(kind, points), unparsable


def _session_of(record: models.Record) -> str:
    return str((record.payload or {}).get("session_id", ""))


def _among(points: Sequence[models.ExtendedPointId]) -> models.HasIdCondition:
    return models.HasIdCondition(has_id=list(points))


def _without(expired: _Expired, held: frozenset[str]) -> _Expired:
    return _Expired(expired.kind, [point for point in expired.points if point[1] not in held])


def _by_session(expired: Sequence[_Expired]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in expired:
        for point, session_id in each.points:
            found.setdefault(session_id, []).append(str(point))
    return found


async def _delete(turns: TurnStore, expired: _Expired) -> int:
    """How many went. By id and kind: a turn that was begun again under its id meanwhile is not old."""
    deleted = 0
    conditions = expired.kind.must if isinstance(expired.kind.must, list) else []
    for start in range(0, len(expired.points), CHUNK):
        among = _among([point for point, _ in expired.points[start : start + CHUNK]])
        wanted = models.Filter(must=[among, *conditions], must_not=expired.kind.must_not)
        before = await turns.count(models.Filter(must=[among]))
        await turns.delete_matching(wanted)
        deleted += before - await turns.count(models.Filter(must=[among]))
        failpoint("expiry.chunk")
    return deleted
