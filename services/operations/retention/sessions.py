"""The sessions collection, as far as expiry is concerned: holds, limits of their own, emptied sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from core.operations.expiry import MAX_DAYS, AgeLimits
from services.conversation.turns import TurnStore
from services.store.dialect import AnyPointId, Condition, Filter, Record, VectorStore
from services.store.filters import any_of, equals, has_id, in_range, matching
from services.store.pages import batches, scroll_all

AT_ONCE = 200  # sessions named in one request

_ON_HOLD = equals("hold", True)
_OWN_LIMIT = in_range("expire_days", gte=1, lte=MAX_DAYS)


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A session that began no turn for long; `session_id` is what its turns are stored with."""

    point: AnyPointId
    session_id: str
    updated_us: int


class SessionRecords:
    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def limits(self, now_us: int, days: int, among: Collection[str] | None = None) -> AgeLimits:
        """What applies beside `days`; of the sessions `among`, or of all. Only sessions that have a hold or a
        limit are read. Raises StoreUnavailableError."""
        if among is None:
            return await self._limits(now_us, days, [])
        points = [session_id for session_id in among if _is_point(session_id)]
        if not points:
            return AgeLimits(now_us, days)
        return await self._limits(now_us, days, [has_id(points)])

    async def any(self) -> bool:
        """Whether there are records at all."""
        records, _ = await self._store.scroll(self._collection, limit=1, with_payload=False)
        return bool(records)

    async def _limits(self, now_us: int, days: int, among: list[Condition]) -> AgeLimits:
        point_filter = Filter(must=among, should=[_ON_HOLD, _OWN_LIMIT])
        held: set[str] = set()
        own: dict[str, int] = {}
        async for record in self._scroll(point_filter, ["session_id", "hold", "expire_days"]):
            payload = record.payload or {}
            names = {str(record.id), str(payload.get("session_id", record.id))}
            limit = payload.get("expire_days")
            if payload.get("hold") is True:
                held |= names
            if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MAX_DAYS:
                own |= dict.fromkeys(names, limit)
        return AgeLimits(now_us, days, own, frozenset(held))

    async def remove_empty(self, turns: TurnStore, limits: AgeLimits) -> int:
        """Erase those that have no turn left and began none since their cutoff: their title is a question."""
        newest_cutoff = max([limits.cutoff_us, *map(limits.cutoff_of, limits.stricter()[:1])])
        quiet = Filter(must=[_quiet_since(newest_cutoff)], must_not=[_ON_HOLD])
        waiting: list[_Quiet] = []
        removed = 0
        async for record in self._scroll(quiet, ["session_id", "updated_us"]):
            session = _quiet(record)
            if session.updated_us < limits.cutoff_of(session.session_id):
                waiting.append(session)
        for batch in batches(waiting, AT_ONCE):
            by_cutoff: dict[int, list[_Quiet]] = {}
            for session in await _emptied(turns, batch):
                by_cutoff.setdefault(limits.cutoff_of(session.session_id), []).append(session)
                removed += 1
            for cutoff_us, sessions in by_cutoff.items():
                await self._remove(sessions, cutoff_us)
        return removed

    async def _remove(self, sessions: Sequence[_Quiet], cutoff_us: int) -> None:
        """Asked again by the store: a turn may have begun, or a session been held, meanwhile."""
        these = has_id([session.point for session in sessions])
        point_filter = Filter(must=[these, _quiet_since(cutoff_us)], must_not=[_ON_HOLD])
        await self._store.delete(self._collection, matching(point_filter))

    async def _scroll(self, point_filter: Filter, fields: Sequence[str]) -> AsyncIterator[Record]:
        async for record in scroll_all(
            self._store, self._collection, point_filter, with_payload=list(fields)
        ):
            yield record


async def _emptied(turns: TurnStore, sessions: Sequence[_Quiet]) -> list[_Quiet]:
    """As a rule all of them are, which one query shows."""
    names = [session.session_id for session in sessions]
    any_of_them = any_of("session_id", names)
    if await turns.count(Filter(must=[any_of_them])) == 0:
        return list(sessions)
    counts = [await turns.count(Filter(must=[equals("session_id", name)])) for name in names]
    return [session for session, count in zip(sessions, counts, strict=True) if count == 0]


def _quiet(record: Record) -> _Quiet:
    payload = record.payload or {}
    updated_us = payload.get("updated_us", 0)
    quiet_since = int(updated_us) if isinstance(updated_us, int | float) else 0
    return _Quiet(record.id, str(payload.get("session_id", record.id)), quiet_since)


def _quiet_since(cutoff_us: int) -> Condition:
    return in_range("updated_us", lt=cutoff_us)


def _is_point(session_id: str) -> bool:
    """Earlier versions named sessions otherwise, too; such a session has no record."""
    try:
        UUID(session_id)
    except ValueError:
        return False
    return True
