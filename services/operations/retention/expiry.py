"""One run of expiry: finds old turns, and deletes them in chunks with everything derived from them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from core.conversation.turns import TurnStatus
from core.dates import rfc3339
from core.failpoints import failpoint
from core.operations.expiry import MAX_DAYS, Age, AgeLimits, ExpiryReport, age_of
from core.text import canonical_uuid
from services.conversation.turns import TurnStore
from services.operations.retention.traces import ErasedTraces, TurnTraces
from services.store.dialect import AnyPointId, Condition, Filter, Record, VectorStore
from services.store.points import any_of, batches, equals, has_id, in_range, matching, scroll_all

# The sessions collection as expiry sees it: holds, sessions' own limits, emptied sessions.


AT_ONCE = 200  # sessions named in one request

_ON_HOLD = equals("hold", True)
_OWN_LIMIT = in_range("expire_days", gte=1, lte=MAX_DAYS)


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A session without a recent turn; `session_id` is the id that its turns are stored with."""

    point: AnyPointId
    session_id: str
    updated_us: int


class SessionRecords:
    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def limits(self, now_us: int, days: int, among: Collection[str] | None = None) -> AgeLimits:
        """Return `days` with the limits and holds of the sessions `among`, or of all. Only sessions that have
        one are read. Raises StoreUnavailableError."""
        if among is None:
            return await self._limits(now_us, days, [])
        # only a UUID has a record; earlier versions also used other names
        points = [session_id for session_id in among if canonical_uuid(session_id)]
        if not points:
            return AgeLimits(now_us, days)
        return await self._limits(now_us, days, [has_id(points)])

    async def any(self) -> bool:
        """Whether any session has a record."""
        records, _ = await self._store.scroll(self._collection, limit=1, with_payload=False)
        return bool(records)

    async def _limits(self, now_us: int, days: int, among: list[Condition]) -> AgeLimits:
        point_filter = Filter(must=among, should=[_ON_HOLD, _OWN_LIMIT])
        held: set[str] = set()
        own: dict[str, int] = {}
        async for record in scroll_all(
            self._store, self._collection, point_filter, with_payload=["session_id", "hold", "expire_days"]
        ):
            payload = record.payload or {}
            names = {str(record.id), str(payload.get("session_id", record.id))}
            limit = payload.get("expire_days")
            if payload.get("hold") is True:
                held |= names
            if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MAX_DAYS:
                own |= dict.fromkeys(names, limit)
        return AgeLimits(now_us, days, own, frozenset(held))

    async def remove_empty(self, turns: TurnStore, limits: AgeLimits) -> int:
        """Erase sessions without a turn, and with none begun since their cutoff: a title is a question."""
        newest_cutoff = max([limits.cutoff_us, *map(limits.cutoff_of, limits.stricter()[:1])])
        quiet = Filter(must=[_quiet_since(newest_cutoff)], must_not=[_ON_HOLD])
        waiting: list[_Quiet] = []
        removed = 0
        async for record in scroll_all(
            self._store, self._collection, quiet, with_payload=["session_id", "updated_us"]
        ):
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
        """Delete, with conditions checked again by the store: a turn may have begun, or a hold been set."""
        these = has_id([session.point for session in sessions])
        point_filter = Filter(must=[these, _quiet_since(cutoff_us)], must_not=[_ON_HOLD])
        await self._store.delete(self._collection, matching(point_filter))


async def _emptied(turns: TurnStore, sessions: Sequence[_Quiet]) -> list[_Quiet]:
    """Return those without a turn; usually that is all of them, which one query shows."""
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


# Which turns have expired, each by the limit of its session. Nothing is changed here.


MAX_UNPARSABLE_IDS = 20

RUNNING = equals("status", TurnStatus.RUNNING.value)
DATED = in_range("created_us", gt=0)
_FIELDS = ["session_id", "created_us", "timestamp"]


@dataclass(frozen=True, slots=True)
class OldTurn:
    point: AnyPointId
    session_id: str


@dataclass(frozen=True, slots=True)
class OldTurns:
    """Turns with the same cutoff. `dated` ones have created_us, by which the store checks their age again."""

    dated: bool
    cutoff_us: int
    turns: list[OldTurn] = field(default_factory=list)

    def among(self, points: Condition) -> Filter:
        """Match those of the points that are still old, and not running."""
        if not self.dated:
            return Filter(must=[points], must_not=[RUNNING, DATED])
        old = in_range("created_us", gt=0, lt=self.cutoff_us)
        return Filter(must=[points, old], must_not=[RUNNING])


@dataclass(slots=True)
class ExpiredTurns:
    """`held` counts old turns of sessions on hold; `unparsable_ids` are the first of the unparsable ones."""

    batches: dict[tuple[bool, int], OldTurns] = field(default_factory=dict)
    sessions: Counter[str] = field(default_factory=Counter)
    held: int = 0
    unparsable: int = 0
    unparsable_ids: list[str] = field(default_factory=list)

    def add(self, record: Record, limits: AgeLimits, *, dated: bool) -> None:
        payload = record.payload or {}
        session_id = str(payload.get("session_id", ""))
        cutoff_us = limits.cutoff_of(session_id)
        match age_of(payload.get("created_us"), payload.get("timestamp"), cutoff_us):
            case Age.UNPARSABLE:
                self.unparsable += 1
                if len(self.unparsable_ids) < MAX_UNPARSABLE_IDS:
                    self.unparsable_ids.append(str(record.id))
            case Age.EXPIRED if session_id in limits.held:
                self.held += 1
            case Age.EXPIRED:
                self.sessions[session_id] += 1
                batch = self.batches.setdefault((dated, cutoff_us), OldTurns(dated, cutoff_us))
                batch.turns.append(OldTurn(record.id, session_id))


async def find_expired(turns: TurnStore, limits: AgeLimits) -> ExpiredTurns:
    """Find expired turns: core.operations.expiry judges each; the store only excludes those surely kept.

    Raises StoreUnavailableError.
    """
    expired = ExpiredTurns()
    async for record in _dated(turns, limits):
        expired.add(record, limits, dated=True)
    undated = Filter(must_not=[RUNNING, DATED])
    async for record in turns.scroll(undated, with_payload=_FIELDS):
        expired.add(record, limits, dated=False)
    return expired


async def _dated(turns: TurnStore, limits: AgeLimits) -> AsyncIterator[Record]:
    """Yield turns older than the general limit, then those expired only by their session's own limit."""
    async for record in _began(turns, in_range("created_us", gt=0, lt=limits.cutoff_us)):
        yield record
    stricter = limits.stricter()
    for page in batches(stricter, AT_ONCE):
        newest_us = max(map(limits.cutoff_of, page))
        between = in_range("created_us", gt=0, gte=limits.cutoff_us, lt=newest_us)
        of_page = any_of("session_id", page)
        async for record in _began(turns, between, of_page):
            yield record


def _began(turns: TurnStore, *where: Condition) -> AsyncIterator[Record]:
    return turns.scroll(Filter(must=list(where), must_not=[RUNNING]), with_payload=_FIELDS)


CHUNK = 500


class ExpiryRun:
    """Deletes exactly the turns with created_us < now − days, except running turns and held sessions.

    A turn of an earlier version, without created_us, is judged by its timestamp; one without a zone expires
    once it is old in every zone. A turn whose time cannot be read is kept and counted. Children of deleted
    turns read as roots; no remaining turn is written. With `records`, sessions on hold are spared, sessions
    with their own limit are judged by it, and emptied ones are removed; with `traces`, the traces of an
    expired turn are erased with it.
    """

    def __init__(
        self,
        turns: TurnStore,
        limits: AgeLimits,
        records: SessionRecords | None,
        traces: TurnTraces | None,
    ) -> None:
        """`limits` apply without `records`. Raises ValueError if its days < 1."""
        self._turns = turns
        self._records = records
        self._traces = traces
        self._limits = limits
        self._cutoff_us = limits.cutoff_us
        self._expired = ExpiredTurns()
        self._total_before = 0
        self._deleted = 0
        self._sessions_removed = 0
        self._erased = ErasedTraces()

    async def find(self) -> int:
        """Count the turns to delete, changing nothing. Raises StoreUnavailableError, as `delete` does."""
        self._limits = await self._limits_now()
        self._total_before = await self._turns.count()
        self._expired = await find_expired(self._turns, self._limits)
        return self._expired.sessions.total()

    async def delete(self, begins: Callable[[Sequence[AnyPointId]], Awaitable[object]] | None = None) -> None:
        """Delete what `find` found; the next run finishes one that was cut off. `begins` is awaited before
        each chunk, with its points."""
        groups = self._expired.batches.values()
        if self._traces is not None:
            await self._traces.erase_log([str(old.point) for batch in groups for old in batch.turns])
            await self._traces.expire_log(self._cutoff_us, self._limits.longer())
        for batch in groups:
            in_order = sorted(batch.turns, key=lambda old: old.session_id)
            for part in batches(in_order, CHUNK):
                if begins is not None:
                    await begins([old.point for old in part])
                await self._delete_chunk(batch, part)
                failpoint("expiry.chunk")
                await asyncio.sleep(0)
        if self._records is not None:
            self._sessions_removed = await self._records.remove_empty(self._turns, self._limits)

    def so_far(self) -> ExpiryReport:
        """Return the report, without what is counted only after the run."""
        return ExpiryReport(
            cutoff=rfc3339(self._cutoff_us),
            days=self._limits.days,
            dry_run=False,
            total_before=self._total_before,
            matched=self._expired.sessions.total(),
            deleted=self._deleted,
            sessions=dict(self._expired.sessions),
            unparsable=self._expired.unparsable,
            unparsable_ids=self._expired.unparsable_ids,
            held=self._expired.held,
            sessions_removed=self._sessions_removed,
            summaries_removed=self._erased.summaries,
            memories_removed=self._erased.memories,
        )

    async def _limits_now(self, among: Sequence[str] | None = None) -> AgeLimits:
        if self._records is None:
            return self._limits
        return await self._records.limits(self._limits.now_us, self._limits.days, among)

    async def _delete_chunk(self, batch: OldTurns, chunk: Sequence[OldTurn]) -> None:
        """Delete a chunk, after checking holds, limits and, in the store, the turns' age again: a turn begun
        again under its id is not old."""
        limits = await self._limits_now(sorted({old.session_id for old in chunk}))
        chunk = [old for old in chunk if _is_still_expired(old, batch, limits)]
        if not chunk:
            return
        if self._traces is not None:
            self._erased += await self._traces.expire_stored(_by_session(chunk))
            failpoint("expiry.traces")
        points = has_id([old.point for old in chunk])
        before = await self._turns.count(Filter(must=[points]))
        await self._turns.delete_matching(batch.among(points))
        self._deleted += before - await self._turns.count(Filter(must=[points]))


def _is_still_expired(old: OldTurn, batch: OldTurns, limits: AgeLimits) -> bool:
    return old.session_id not in limits.held and limits.cutoff_of(old.session_id) >= batch.cutoff_us


def _by_session(chunk: Sequence[OldTurn]) -> dict[str, list[str]]:
    by_session: dict[str, list[str]] = {}
    for old in chunk:
        by_session.setdefault(old.session_id, []).append(str(old.point))
    return by_session
