"""Expiry (RELIABILITY P10, F31)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conversation.sessions import walk_branch
from core.dates import rfc3339
from core.operations.expiry import DAY_US, ExpiryReport
from services.operations.retention.expiry import SessionRecords
from services.store.dialect import VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    open_edge,
    open_memory,
    payloads,
    turn_store,
    uid,
    write_point,
    write_session,
    write_turn,
)
from tests.services.operations.retention.parts import expire_turns

NOW = 1_750_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe", "Pacific/Kiritimati"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


async def expire(
    store: VectorStore, days: int = 30, *, dry_run: bool = False, now: int = NOW
) -> ExpiryReport:
    records = SessionRecords(store, SESSIONS)
    return await expire_turns(turn_store(store), now, days, dry_run=dry_run, records=records)


ages = st.one_of(
    st.integers(-3 * DAY_US, 100 * DAY_US),
    st.sampled_from([30 * DAY_US, 30 * DAY_US - 1, 30 * DAY_US + 1, 0, -1, 7 * DAY_US]),
)
stored = st.tuples(ages, st.sampled_from(["completed", "failed", "cancelled", "running"]))


@pytest.mark.full("works through many cases, for seconds")
@settings(max_examples=40, deadline=None)
@given(st.lists(stored, max_size=30), st.sampled_from([1, 7, 29, 30, 31, 90]))
def test_exactly_the_turns_before_the_cutoff_are_deleted(turns: list[tuple[int, str]], days: int) -> None:
    """Red for <= instead of <, for a float cutoff, and when running turns are not spared."""

    async def run() -> None:
        async with open_memory() as store:
            for number, (age, status) in enumerate(turns):
                await write_turn(store, number, NOW - age, status)
            dry = await expire(store, days, dry_run=True)
            assert len(await payloads(store)) == len(turns)
            report = await expire(store, days)
            remaining = {
                n for n, (age, status) in enumerate(turns) if age <= days * DAY_US or status == "running"
            }
            assert set(await payloads(store)) == {uid(number) for number in remaining}
            assert report.matched == report.deleted == dry.matched == len(turns) - len(remaining)
            assert (report.total_before, report.total_after) == (len(turns), len(remaining))
            assert (await expire(store, days)).matched == 0

    asyncio.run(run())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ages, st.sampled_from(ZONES)), min_size=1, max_size=20))
def test_times_with_a_zone_count_as_that_instant(turns: list[tuple[int, str]]) -> None:
    """Turns of earlier versions, with a timestamp and no created_us; offsets differ by season."""

    async def run() -> None:
        async with open_memory() as store:
            for number, (age, zone) in enumerate(turns):
                moment = EPOCH + timedelta(microseconds=NOW - age)
                text = moment.astimezone(ZoneInfo(zone)).isoformat()
                await write_point(store, uid(number), session_id="s", timestamp=text)
            await expire(store)
            old = {uid(number) for number, (age, _) in enumerate(turns) if age > 30 * DAY_US}
            assert set(await payloads(store)) == {uid(number) for number in range(len(turns))} - old

    asyncio.run(run())


@pytest.mark.full("works through many cases, for seconds")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ages, st.sampled_from(ZONES)), min_size=1, max_size=20))
def test_a_time_without_a_zone_never_expires_early_wherever_it_was_written(
    turns: list[tuple[int, str]],
) -> None:
    """Red when local times are read as UTC: east of Greenwich they would be kept, west of it lost early."""

    async def run() -> None:
        async with open_memory() as store:
            for number, (age, zone) in enumerate(turns):
                moment = EPOCH + timedelta(microseconds=NOW - age)
                text = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat()
                await write_point(store, uid(number), session_id="s", timestamp=text)
            await expire(store)
            remaining = set(await payloads(store))
            for number, (age, _) in enumerate(turns):
                assert age > 30 * DAY_US or uid(number) in remaining
                assert age < 30 * DAY_US + 26 * 3_600_000_000 + 1 or uid(number) not in remaining

    asyncio.run(run())


async def test_the_report_counts_by_session(store: VectorStore) -> None:
    for number, session in enumerate([1, 1, 2, 3]):
        await write_turn(store, number, NOW - 40 * DAY_US if session < 3 else NOW, session=session)
    report = await expire(store, dry_run=True)
    assert report.sessions == {uid(1): 2, uid(2): 1}
    assert (report.matched, report.deleted, report.total_after) == (3, 0, 4)
    assert report.cutoff == rfc3339(NOW - 30 * DAY_US)


async def test_more_days_never_delete_more(store: VectorStore) -> None:
    for number in range(60):
        await write_turn(store, number, NOW - number * DAY_US)
    matched = [(await expire(store, days, dry_run=True)).matched for days in (1, 7, 30, 59, 60, 36_500)]
    assert matched == sorted(matched, reverse=True)
    assert matched[-1] == 0


async def test_a_turn_without_a_readable_time_is_kept_and_counted(store: VectorStore) -> None:
    await write_point(store, uid(1), session_id="s", timestamp="the day before yesterday")
    await write_point(store, uid(2), session_id="s", timestamp="", created_us=0)
    await write_point(store, uid(3), session_id="s")
    await write_point(store, 4, session_id="s", timestamp="2001-01-01T00:00:00Z")
    report = await expire(store)
    assert (report.unparsable, report.deleted) == (3, 1)
    assert set(await payloads(store)) == {uid(1), uid(2), uid(3)}


async def test_children_of_deleted_turns_read_as_roots(store: VectorStore) -> None:
    await write_turn(store, 1, NOW - 31 * DAY_US)
    await write_turn(store, 2, NOW - 29 * DAY_US, parent_turn_id=uid(1))
    await write_turn(store, 3, NOW, parent_turn_id=uid(2))
    await expire(store)
    nodes = (await turn_store(store).tree(uid(1), "local")).nodes
    assert [node.turn_id for node in walk_branch(nodes, uid(3))] == [uid(2), uid(3)]


async def test_a_session_on_hold_is_spared(store: VectorStore) -> None:
    for number in (1, 2):
        await write_turn(store, number, NOW - 90 * DAY_US, session=number)
        await write_session(store, number, NOW - 90 * DAY_US, hold=number == 1)
    report = await expire(store)
    assert (report.deleted, report.held, report.sessions) == (1, 1, {uid(2): 1})
    assert set(await payloads(store)) == {uid(1)}
    assert set(await payloads(store, SESSIONS)) == {uid(1)}


async def test_a_session_is_removed_from_the_list_with_its_last_turn(store: VectorStore) -> None:
    """Its title is the text of a question that has expired."""
    await write_turn(store, 1, NOW - 90 * DAY_US, session=1)
    await write_turn(store, 2, NOW, session=2)
    await write_session(store, 1, NOW - 90 * DAY_US)
    await write_session(store, 2, NOW - 90 * DAY_US)
    await write_session(store, 3, NOW)
    assert (await expire(store, dry_run=True)).sessions_removed == 0
    assert (await expire(store)).sessions_removed == 1
    assert set(await payloads(store, SESSIONS)) == {uid(2), uid(3)}


@pytest.mark.full("works through many cases, for seconds")
async def test_1500_turns_are_deleted_in_batches(store: VectorStore) -> None:
    for number in range(1_500):
        await write_turn(store, number, NOW - 31 * DAY_US)
    report = await expire(store)
    assert (report.deleted, report.total_after) == (1_500, 0)


async def test_a_clock_set_back_deletes_nothing_early(store: VectorStore) -> None:
    await write_turn(store, 1, NOW - 29 * DAY_US)
    await write_turn(store, 2, NOW + 5 * DAY_US)
    assert (await expire(store, now=NOW - 10 * DAY_US)).deleted == 0
    assert (await expire(store)).deleted == 0


@pytest.mark.parametrize("days", [0, -1])
async def test_less_than_a_day_is_refused(store: VectorStore, days: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await expire(store, days)
