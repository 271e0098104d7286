"""Expiry by session: holds, limits of their own, and all of P10 together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conversation.sessions import SessionChange
from core.operations.expiry import DAY_US, AgeLimits, ExpiryReport
from services.conversation.sessions import SessionStore
from services.conversation.turns import TurnStore
from services.operations.retention.expiry import AT_ONCE, CHUNK, SessionRecords
from services.operations.retention.traces import TurnTraces
from services.store.dialect import Filter, VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    open_edge,
    open_memory,
    payloads,
    turn_store,
    uid,
    write_point,
    write_turn,
)
from tests.services.operations.retention.parts import NOW, expire_turns, write_limited

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = range(1, 5)  # of sessions
FORMS = ["created", "zulu", "+08:00", "seconds", "unreadable"]
LIMITS = [1, 7, 30, 31, 90]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


async def expire(store: VectorStore, days: int = 30, *, dry_run: bool = False) -> ExpiryReport:
    records = SessionRecords(store, SESSIONS)
    return await expire_turns(turn_store(store), NOW, days, dry_run=dry_run, records=records)


@dataclass(frozen=True)
class Written:
    """A turn of `age_us`, stored in one of FORMS."""

    session: int
    age_us: int
    form: str
    running: bool

    @property
    def created_us(self) -> int:
        return NOW - self.age_us - ((NOW - self.age_us) % 1_000_000 if self.form == "seconds" else 0)

    async def write(self, store: VectorStore, number: int) -> None:
        status = "running" if self.running else "completed"
        if self.form == "created":
            await write_turn(store, number, self.created_us, status, self.session)
            return
        moment = (EPOCH + timedelta(microseconds=self.created_us)).astimezone(ZoneInfo("Asia/Shanghai"))
        if self.form in ("zulu", "seconds"):
            moment = moment.astimezone(UTC)
        text = "2025-99-99" if self.form == "unreadable" else moment.isoformat().replace("+00:00", "Z")
        await write_point(store, uid(number), session_id=uid(self.session), timestamp=text, status=status)

    def expires(self, days: int, own: dict[int, int | None], held: set[int]) -> bool:
        limit = own[self.session] or days
        old = self.form != "unreadable" and self.created_us < NOW - limit * DAY_US
        return old and not self.running and self.session not in held


turns = st.lists(
    st.builds(
        Written,
        st.sampled_from(NUMBERS),
        st.builds(
            lambda days, us: days * DAY_US + us,
            st.sampled_from([*LIMITS, -3, 0, 2, 50]),
            st.sampled_from([-1, 0, 1, 5 * 3_600_000_000]),
        ),
        st.sampled_from(FORMS),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=25,
)
own_limits = st.fixed_dictionaries({number: st.sampled_from([None, None, *LIMITS]) for number in NUMBERS})


@pytest.mark.slow("a property, over many stores")
@settings(max_examples=150)
@given(turns, own_limits, st.sets(st.sampled_from(NUMBERS), max_size=2), st.sampled_from(LIMITS))
def test_exactly_the_turns_older_than_their_limit_are_deleted(
    written: list[Written], own: dict[int, int | None], held: set[int], days: int
) -> None:
    """P10. Discriminates: a limit overriding a hold; honouring only longer or only shorter limits; `<=`;
    searching the stricter sessions' turns beyond the page's latest cutoff; deleting unreadable times."""

    async def run() -> None:
        async with open_memory() as store:
            for number, limit in own.items():
                await write_limited(store, number, NOW, limit, number in held)
            for number, turn in enumerate(written):
                await turn.write(store, number)
            deleted = {number for number, turn in enumerate(written) if turn.expires(days, own, held)}
            dry = await expire(store, days, dry_run=True)
            assert len(await payloads(store)) == len(written)
            report = await expire(store, days)
            left = set(await payloads(store))
            assert left == {uid(number) for number in range(len(written))} - {
                uid(number) for number in deleted
            }
            assert report.matched == report.deleted == dry.matched == len(deleted)
            assert report.sessions == dry.sessions
            unreadable = [
                n for n, turn in enumerate(written) if turn.form == "unreadable" and not turn.running
            ]
            assert report.unparsable == len(unreadable)
            assert set(report.unparsable_ids) == {uid(number) for number in unreadable[:20]}
            assert (await expire(store, days)).matched == 0

    asyncio.run(run())


async def test_a_session_uses_its_own_limit_shorter_or_longer(store: VectorStore) -> None:
    for session, limit in ((1, 7), (2, 90), (3, None)):
        await write_limited(store, session, NOW - 40 * DAY_US, limit)
        for number, days in enumerate((5, 8, 31, 91)):
            await write_turn(store, 10 * session + number, NOW - days * DAY_US, session=session)
    report = await expire(store)
    assert report.sessions == {uid(1): 3, uid(2): 1, uid(3): 2}
    assert set(await payloads(store)) == {uid(number) for number in (10, 20, 21, 22, 30, 31)}


async def test_many_sessions_with_limits_are_queried_page_by_page(store: VectorStore) -> None:
    """Discriminates: omitting a page's last sessions; one cutoff for a whole page."""
    for session in range(1, 2 * AT_ONCE + 10):
        await write_limited(store, session, NOW, 1 + session % 20)
        await write_turn(store, session, NOW - 10 * DAY_US, session=session)
    report = await expire(store)
    deleted = [session for session in range(1, 2 * AT_ONCE + 10) if 1 + session % 20 < 10]
    assert set(report.sessions) == {uid(session) for session in deleted}
    assert report.deleted == len(deleted)


@pytest.mark.parametrize("limit", ["seven", 0, -1, 10**9, True, [7], None])
async def test_an_unreadable_limit_is_ignored(store: VectorStore, limit: object) -> None:
    await write_limited(store, 1, NOW, 7)
    await store.set_payload(SESSIONS, {"expire_days": limit}, points=[uid(1)])
    await write_turn(store, 1, NOW - 8 * DAY_US)
    await write_turn(store, 2, NOW - 31 * DAY_US)
    assert (await expire(store)).deleted == 1
    assert set(await payloads(store)) == {uid(1)}


async def test_an_emptied_session_is_removed_from_the_list_by_its_own_limit(store: VectorStore) -> None:
    """Discriminates: the general cutoff for all, in either direction."""
    for session, limit in ((1, 7), (2, 90), (3, None), (4, 7)):
        await write_limited(store, session, NOW - 40 * DAY_US if session < 3 else NOW - 8 * DAY_US, limit)
        if session != 2:
            await write_turn(store, session, NOW - 8 * DAY_US, session=session)
    await write_limited(store, 5, NOW - 40 * DAY_US)
    report = await expire(store)
    assert (report.deleted, report.sessions_removed) == (2, 3)
    assert set(await payloads(store, SESSIONS)) == {uid(2), uid(3)}


async def test_a_hold_set_while_turns_are_deleted_counts_from_the_next_batch(
    store: VectorStore,
) -> None:
    """Discriminates: reading holds only once. Session 2 is put on hold while the turns of session 1 are
    deleted."""
    sessions = SessionStore(store, SESSIONS)
    for session in (1, 2):
        await write_limited(store, session, NOW - 90 * DAY_US)
        for number in range(CHUNK * session, CHUNK * (session + 1)):
            await write_turn(store, number, NOW - 90 * DAY_US, session=session)

    async def hold_the_other(session_id: str, owner: str | None, turn_ids: Collection[str]) -> int:
        await sessions.change(uid(2), "local", SessionChange(hold=True))
        return 0

    traces = TurnTraces(hold_the_other, sessions, None)
    records = SessionRecords(store, SESSIONS)
    report = await expire_turns(turn_store(store), NOW, 30, dry_run=False, records=records, traces=traces)
    assert (report.matched, report.deleted, report.total_after) == (2 * CHUNK, CHUNK, CHUNK)
    assert set(await payloads(store, SESSIONS)) == {uid(2)}


async def test_a_hold_set_before_an_empty_session_is_removed_keeps_it(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: reading holds only when the sessions are listed."""
    await write_limited(store, 1, NOW - 90 * DAY_US)
    turns, count = turn_store(store), TurnStore.count

    async def hold_meanwhile(of: TurnStore, point_filter: Filter) -> int:
        await SessionStore(store, SESSIONS).change(uid(1), "local", SessionChange(hold=True))
        return await count(of, point_filter)

    monkeypatch.setattr(TurnStore, "count", hold_meanwhile)
    limits = AgeLimits(NOW, 30, {}, frozenset())
    await SessionRecords(store, SESSIONS).remove_empty(turns, limits)
    assert set(await payloads(store, SESSIONS)) == {uid(1)}
