"""Plans the repair of a collection of turns, session by session. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from core.conversation.sessions import Session
from core.errors import BadRequestError
from core.operations.backfill import claimed_ids, plan_session, possible_twins
from core.operations.backfill_turns import (
    BackfillOptions,
    BackfillPlan,
    Finding,
    PointId,
    Repair,
    SessionPlan,
    StoredTurn,
    Trouble,
    TurnChange,
    is_listable,
)
from core.text import canonical_uuid
from services.conversation.sessions import title_from
from services.conversation.turns import TurnStore
from services.operations.repair.stored import FIELDS, point_id_of, stored_turn, text_digests, text_of
from services.store.dialect import Filter, Record, VectorStore
from services.store.points import any_of, batches, equals, existing_points


@dataclass(frozen=True, slots=True)
class Contents:
    """The ids of sessions with turns, sorted; the points that name no session; and the stored turn ids that
    are not their point's id."""

    session_ids: tuple[str, ...]
    unreadable: tuple[PointId, ...]
    turn_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Planner:
    """`collection` holds the turns, of any version; `session_collection` the sessions' records."""

    store: VectorStore
    collection: str
    session_collection: str
    questions_only: bool = False
    """Whether to ignore points without a question."""

    async def plan(self, options: BackfillOptions) -> BackfillPlan:
        """Read every session, or one. Vectors are ignored.

        Raises BadRequestError if there is no such time zone, StoreUnavailableError.
        """
        zone = zone_named(options.assume_timezone)
        contents = await self._contents(options.session_id)
        planned: list[SessionPlan] = []
        taken: set[str] = set()
        for page in batches(contents.session_ids):
            sessions = await self._stored_turns(page, zone)
            claims = claimed_ids([turn for turns in sessions.values() for turn in turns])
            taken |= await existing_points(self.store, self.collection, sorted(claims))
            # in a thread: 50 µs a turn, and nobody else would be answered for seconds of a big store
            planned += await asyncio.to_thread(_plan_sessions, sessions, taken, options, zone)
        all_read = contents if options.session_id is None else None
        plans = await self._reclassify_parents(planned, all_read)
        new = await self._missing_sessions(plans)
        return BackfillPlan(plans, new, contents.unreadable, options=options)

    async def known_sessions(self, session_ids: Sequence[str]) -> set[str]:
        return await existing_points(self.store, self.session_collection, session_ids)

    def _turns(self) -> TurnStore:
        return TurnStore(self.store, self.collection)

    async def _scroll(self, point_filter: Filter | None, fields: list[str]) -> AsyncIterator[Record]:
        names = [*fields, "user_query"] if self.questions_only else fields
        async for record in self._turns().scroll(point_filter, with_payload=names):
            if not self.questions_only or isinstance((record.payload or {}).get("user_query"), str):
                yield record

    async def _contents(self, session_id: str | None) -> Contents:
        sessions: set[str] = set()
        unreadable: list[PointId] = []
        turn_ids: set[str] = set()
        only = Filter(must=[equals("session_id", session_id)]) if session_id is not None else None
        async for record in self._scroll(only, ["session_id", "turn_id"]):
            payload = record.payload or {}
            name, turn_id = payload.get("session_id"), text_of(payload.get("turn_id"))
            if name and isinstance(name, str):
                sessions.add(name)
            else:
                unreadable.append(point_id_of(record))
            if turn_id and turn_id != str(record.id):
                turn_ids.add(turn_id)
        return Contents(tuple(sorted(sessions)), tuple(unreadable), frozenset(turn_ids))

    async def _stored_turns(self, session_ids: Sequence[str], zone: ZoneInfo) -> dict[str, list[StoredTurn]]:
        """Return the turns by session, in the order of `session_ids`."""
        point_filter = Filter(must=[any_of("session_id", session_ids)])
        by_session: dict[str, list[StoredTurn]] = {session_id: [] for session_id in session_ids}
        async for record in self._scroll(point_filter, FIELDS):
            by_session[(record.payload or {})["session_id"]].append(stored_turn(record))
        await self._digest_texts(by_session, zone)
        return {name: turns for name, turns in by_session.items() if turns}

    async def _digest_texts(self, by_session: dict[str, list[StoredTurn]], zone: ZoneInfo) -> None:
        """Add text digests where two turns of a session have the same time: elsewhere they are not needed."""
        points = await asyncio.to_thread(
            lambda: [point for turns in by_session.values() for point in possible_twins(turns, zone)]
        )
        digests = await text_digests(self.store, self.collection, points)
        if digests:
            for name, turns in by_session.items():
                by_session[name] = [
                    replace(turn, text_digest=digests.get(turn.point_id, "")) for turn in turns
                ]

    async def _reclassify_parents(
        self, planned: Sequence[SessionPlan], contents: Contents | None
    ) -> tuple[SessionPlan, ...]:
        """Check whether a parent that is not in the session is in another one; otherwise it has expired.

        `contents` are those of the whole collection; None when they were not read yet.
        """
        dangling = {finding.before for plan in planned for finding in plan.findings if _dangles(finding)}
        names = {name for name in dangling if name}
        ids = {canonical for name in names if (canonical := canonical_uuid(name))}
        points = await existing_points(self.store, self.collection, sorted(ids))
        elsewhere = {name for name in names if canonical_uuid(name) in points}
        if names - elsewhere:  # no index has the stored turn ids: read page by page, others come in between
            elsewhere |= names & (contents or await self._contents(None)).turn_ids
        return await asyncio.to_thread(lambda: tuple([_reclassified(plan, elsewhere) for plan in planned]))

    async def _missing_sessions(self, planned: Sequence[SessionPlan]) -> tuple[Session, ...]:
        """Build a record for each session that has none yet and whose id is a UUID."""
        first = {plan.session_id: plan for plan in reversed(planned) if is_listable(plan.session_id)}
        known = await self.known_sessions(list(first))
        missing = [plan for name, plan in sorted(first.items()) if name not in known]
        return tuple([session for page in batches(missing) for session in await self._sessions(page)])

    async def _sessions(self, missing: Sequence[SessionPlan]) -> list[Session]:
        firsts = [_first_point(plan) for plan in missing]
        records = await self.store.retrieve(self.collection, firsts, with_payload=["user_query"])
        questions = {
            point_id_of(record): text_of((record.payload or {}).get("user_query")) for record in records
        }
        return [
            Session(
                plan.session_id,
                plan.owner,
                title_from(questions.get(point) or ""),
                plan.created_us,
                plan.updated_us,
            )
            for plan, point in zip(missing, firsts, strict=True)
        ]


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequestError(f"assume_timezone: there is no time zone {name!r}.") from None


def _plan_sessions(
    sessions: Mapping[str, Sequence[StoredTurn]], taken: set[str], options: BackfillOptions, zone: ZoneInfo
) -> list[SessionPlan]:
    """Plan these sessions in order, each by owner; ids that turns move to are added to `taken`."""
    planned: list[SessionPlan] = []
    for session_id, turns in sessions.items():
        for group in _by_owner(turns, options.owner):
            plan = plan_session(
                session_id, group, owner=options.owner, zone=zone, taken=taken,
                drop_duplicates=options.drop_duplicates,
            )  # fmt: skip
            planned.append(plan)
            taken |= {change.turn_id for change in plan.changes if change.rehomed}
    return planned


def _by_owner(turns: Sequence[StoredTurn], default: str) -> list[list[StoredTurn]]:
    """Group turns by owner, to be planned separately: a tree never includes another owner's turns."""
    groups: dict[str, list[StoredTurn]] = {}
    for turn in turns:
        groups.setdefault(turn.owner or default, []).append(turn)
    return list(groups.values())


def _first_point(plan: SessionPlan) -> PointId:
    origins = {change.turn_id: change.point_id for change in plan.changes}
    return origins.get(plan.first_turn_id, plan.first_turn_id)


def _dangles(finding: Finding) -> bool:
    return finding.trouble is Trouble.DANGLING_PARENT


def _reclassified(plan: SessionPlan, elsewhere: set[str]) -> SessionPlan:
    """Mark foreign parents; a turn of ours whose parent has expired is a root, no finding, and unchanged."""
    ours = {change.point_id for change in plan.changes if change.before.ours}
    lost = {each.point_id for each in plan.findings if _dangles(each) and each.before not in elsewhere}
    roots = ours & lost
    findings = [each for each in plan.findings if not (_dangles(each) and each.point_id in roots)]
    changes = [_as_root(each) if each.point_id in roots else each for each in plan.changes]
    return replace(
        plan,
        findings=tuple([_foreign(each) if each.before in elsewhere else each for each in findings]),
        changes=tuple([each for each in changes if each.repairs or each.rehomed]),
    )


def _foreign(finding: Finding) -> Finding:
    return replace(finding, trouble=Trouble.FOREIGN_PARENT) if _dangles(finding) else finding


def _as_root(change: TurnChange) -> TurnChange:
    repairs = tuple(each for each in change.repairs if each is not Repair.PARENT)
    return replace(change, parent_turn_id=change.before.parent_turn_id, repairs=repairs)
