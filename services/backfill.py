"""Repair of the stored conversations: reads every session, plans in core.backfill, writes what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from qdrant_client import models

from core.backfill import PointId, Repair, SessionPlan, StoredTurn, TurnChange, claimed_ids
from core.backfill import plan_session as plan_one
from core.errors import BadRequestError
from core.failpoints import failpoint
from services.backfill_plan import BackfillPlan, BackfillReport, is_listable
from services.sessions import Session, title_from
from services.store import UnknownPointError, VectorStore
from services.turn_store import TurnStore, equals

FIELDS = [*(repair.value for repair in Repair), "session_id", "legacy_turn_id", "legacy_point_id"]
PAGE = 500

T = TypeVar("T")

Progress = Callable[[int], object]
"""Told how many more turns have been written."""


class Backfill:
    def __init__(
        self, turns: TurnStore, store: VectorStore, collection: str, session_collection: str = "sessions"
    ) -> None:
        """`collection` holds the turns, and is the one that `turns` reads."""
        self._turns = turns
        self._store = store
        self._collection = collection
        self._session_collection = session_collection

    async def plan(
        self, assume_timezone: str = "UTC", owner: str = "local", session_id: str | None = None
    ) -> BackfillPlan:
        """Read every session, or one, and write nothing.

        Times without a zone are read in `assume_timezone`; turns without an owner become `owner`'s.
        Raises BadRequestError when there is no such time zone, StoreUnavailableError.
        """
        zone = _zone(assume_timezone)
        session_ids, unreadable = await self._session_ids(session_id)
        planned: list[SessionPlan] = []
        claimed: set[str] = set()
        for page in _pages(session_ids):
            for each, turns in (await self._stored_turns(page)).items():
                wanted = claimed_ids(turns)
                existing = await self._existing(wanted)
                for group in _by_owner(turns, owner):
                    taken = existing | (wanted & claimed)
                    plan = plan_one(each, group, owner=owner, zone=zone, taken=taken)
                    planned.append(plan)
                    claimed |= {change.turn_id for change in plan.changes if change.rehomed}
        return BackfillPlan(tuple(planned), await self._missing_sessions(planned), unreadable)

    async def apply(self, plan: BackfillPlan, progress: Progress | None = None) -> BackfillReport:
        """Write the plan. What is written is complete after every turn, so a run that is cut is run again.

        Vectors are only read, and written, where a point moves to its turn id. Raises StoreUnavailableError.
        """
        told = progress or (lambda done: None)
        gone = 0
        for change in plan.changes:
            gone += not await self._write(change)
            failpoint("backfill.turn")
            told(1)
        for session in plan.sessions:
            if session.leftovers:
                await self._delete(session.leftovers)
                told(len(session.leftovers))
        self._turns.forget_trees()
        created = await self._create_sessions(plan.new_sessions)
        return plan.report(dry_run=False, sessions_created=created, gone=gone)

    async def _session_ids(self, wanted: str | None) -> tuple[list[str], tuple[PointId, ...]]:
        """Every session that has turns, in order, and the points that name none."""
        found: set[str] = set()
        unreadable: list[PointId] = []
        only = models.Filter(must=[equals("session_id", wanted)]) if wanted is not None else None
        async for record in self._turns.scroll(only, with_payload=["session_id"]):
            name = (record.payload or {}).get("session_id")
            if name and isinstance(name, str):
                found.add(name)
            else:
                unreadable.append(_point_id(record))
        return sorted(found), tuple(unreadable)

    async def _stored_turns(self, session_ids: Sequence[str]) -> dict[str, list[StoredTurn]]:
        """By session, in the given order."""
        match = models.MatchAny(any=list(session_ids))
        wanted = models.Filter(must=[models.FieldCondition(key="session_id", match=match)])
        found: dict[str, list[StoredTurn]] = {session_id: [] for session_id in session_ids}
        async for record in self._turns.scroll(wanted, with_payload=FIELDS):
            found[(record.payload or {})["session_id"]].append(_stored(record))
        return {name: turns for name, turns in found.items() if turns}

    async def _existing(self, turn_ids: set[str]) -> set[str]:
        """Those that are points already, of whatever session."""
        found: set[str] = set()
        for page in _pages(sorted(turn_ids)):
            records = await self._store.retrieve(self._collection, page, with_payload=False)
            found |= {str(record.id) for record in records}
        return found

    async def _write(self, change: TurnChange) -> bool:
        """False when the turn is gone."""
        if change.rehomed:
            return await self._rehome(change)
        try:
            await self._store.set_payload(self._collection, _fields(change), points=[change.point_id])
        except UnknownPointError:
            return False
        return True

    async def _rehome(self, change: TurnChange) -> bool:
        """Copy the point to its turn id, then delete it; cut between the two, the copy says what it is of."""
        records = await self._store.retrieve(self._collection, [change.point_id], with_vectors=True)
        if not records:
            return False
        payload = {**(records[0].payload or {}), **_fields(change), "legacy_point_id": change.point_id}
        vector: Any = records[0].vector or {}
        copy = models.PointStruct(id=change.turn_id, vector=vector, payload=payload)
        await self._store.upsert(self._collection, [copy])
        failpoint("backfill.copied")
        await self._delete([change.point_id])
        return True

    async def _delete(self, points: Sequence[PointId]) -> None:
        await self._store.delete(self._collection, models.PointIdsList(points=list(points)))

    async def _missing_sessions(self, planned: Sequence[SessionPlan]) -> tuple[Session, ...]:
        """A record for each session that is not in the list yet and whose id is a UUID."""
        first = {plan.session_id: plan for plan in reversed(planned) if is_listable(plan.session_id)}
        known = await self._known_sessions(list(first))
        missing = [plan for name, plan in sorted(first.items()) if name not in known]
        return tuple([await self._session(plan) for plan in missing])

    async def _session(self, plan: SessionPlan) -> Session:
        origins = {change.turn_id: change.point_id for change in plan.changes}
        point = origins.get(plan.first_turn_id, plan.first_turn_id)
        records = await self._store.retrieve(self._collection, [point], with_payload=["user_query"])
        question = _text((records[0].payload or {}).get("user_query")) if records else None
        return Session(
            plan.session_id, plan.owner, title_from(question or ""), plan.created_us, plan.updated_us
        )

    async def _known_sessions(self, session_ids: Sequence[str]) -> set[str]:
        known: set[str] = set()
        for page in _pages(session_ids):
            records = await self._store.retrieve(self._session_collection, page, with_payload=False)
            known |= {str(record.id) for record in records}
        return known

    async def _create_sessions(self, sessions: Sequence[Session]) -> int:
        """Those that somebody made since the plan are left as they are."""
        known = await self._known_sessions([session.session_id for session in sessions])
        fresh = [session for session in sessions if session.session_id not in known]
        for page in _pages(fresh):
            points = [
                models.PointStruct(id=session.session_id, vector={}, payload=asdict(session))
                for session in page
            ]
            await self._store.upsert(self._session_collection, points)
        return len(fresh)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequestError(f"assume_timezone: there is no time zone {name!r}.") from None


def _by_owner(turns: Sequence[StoredTurn], default: str) -> list[list[StoredTurn]]:
    """A tree never reaches into somebody else's turns, so each owner's are planned by themselves."""
    groups: dict[str, list[StoredTurn]] = {}
    for turn in turns:
        groups.setdefault(turn.owner or default, []).append(turn)
    return list(groups.values())


def _fields(change: TurnChange) -> dict[str, Any]:
    """The payload fields to write."""
    values = {repair.value: getattr(change, repair.value) for repair in change.repairs}
    if change.legacy_turn_id is not None:
        values["legacy_turn_id"] = change.legacy_turn_id
    return values


def _stored(record: models.Record) -> StoredTurn:
    payload = record.payload or {}
    return StoredTurn(
        point_id=_point_id(record),
        turn_id=_text(payload.get("turn_id")),
        parent_turn_id=_text(payload.get("parent_turn_id")),
        timestamp=_text(payload.get("timestamp")) or "",
        created_us=_number(payload.get("created_us")),
        seq=_number(payload.get("seq")),
        owner=_text(payload.get("owner")) or None,
        status=_text(payload.get("status")),
        schema=_number(payload.get("schema")),
        legacy_turn_id=_text(payload.get("legacy_turn_id")),
        legacy_point_id=payload.get("legacy_point_id"),
    )


def _point_id(record: models.Record) -> PointId:
    return record.id if isinstance(record.id, int) else str(record.id)


def _text(value: object) -> str | None:
    """Numbers were used as ids once; what children call them is their text."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + PAGE] for start in range(0, len(items), PAGE))
