"""The lease's record in the store, on every engine (RELIABILITY F29)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dates import moment_at
from core.operations.reports import Receipt, ReceiptKind
from services.adapters.schedule import slots_of, zone_named
from services.operations.schedule.lease import (
    HOUR_US,
    DueSlot,
    Lease,
    LeaseRecord,
    LeaseStore,
    LocalSlots,
    Pace,
    first_moment,
    us_of,
)
from services.store.clock import ClockWatch
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store
from tests.support.stores.schedule import REPORT, Clocks, Every, MemoryLease, make_operations

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)
HELD = LeaseRecord("first", holder="one:1", last_slot=5)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        await make_operations(opened)
        yield opened


@pytest.fixture(params=[*ENGINES, "process"])
async def lease(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lease]:
    if request.param == "process":
        yield MemoryLease()
        return
    async with open_store(request.param, tmp_path) as opened:
        await make_operations(opened)
        yield LeaseStore(opened, "operations")


async def test_an_existing_record_is_not_created_again(store: VectorStore) -> None:
    """Discriminates: an upsert without a check."""
    lease = LeaseStore(store, "operations")
    assert await lease.read() is None
    await lease.make(HELD)
    await LeaseStore(store, "operations").make(replace(HELD, token="second"))
    assert await lease.read() == HELD


async def test_a_change_is_read_back_as_written(lease: Lease) -> None:
    await lease.make(HELD)
    seen = await lease.read()
    assert seen is not None
    new = LeaseRecord("t", "two:2", 9, 2, 5, 7, "SomeError", replace(REPORT, sessions={}), 8)
    assert await lease.swap(seen, new) == new
    assert await lease.read() == new


async def test_a_change_of_a_record_changed_meanwhile_is_not_made(lease: Lease) -> None:
    """Discriminates: a change without a condition."""
    await lease.make(HELD)
    seen = await lease.read()
    assert seen is not None
    taken = replace(seen, token="other")
    assert await lease.swap(seen, taken) == taken
    assert await lease.swap(seen, replace(seen, token="late")) == taken


async def test_one_of_twenty_concurrent_claims_succeeds(lease: Lease) -> None:
    await lease.make(HELD)
    record = await lease.read()
    assert record is not None
    claims = [replace(record, token=f"claim {n}", holder=f"worker:{n}") for n in range(20)]
    results = await asyncio.gather(*[lease.swap(record, claim) for claim in claims])
    won = [claim for claim, after in zip(claims, results, strict=True) if after == claim]
    assert len(won) == 1
    assert await lease.read() == won[0]


async def test_a_note_does_not_affect_the_record_and_vice_versa(lease: Lease) -> None:
    """Discriminates: a note written with the record as it was read."""
    await lease.make(HELD)
    record = await lease.read()
    assert record is not None
    await lease.note(9, "the clock")
    after = await lease.swap(record, replace(record, token="t"))
    assert after == replace(record, token="t", skipped_slot=9, skipped="the clock")


async def test_an_unreadable_record_is_recreated(store: VectorStore) -> None:
    lease = LeaseStore(store, "operations")
    await lease.make(HELD)
    point = (await store.scroll("operations"))[0][0].id
    await store.set_payload("operations", {"attempts": "many"}, points=[point])
    assert await lease.read() is None
    await lease.make(HELD)
    assert await lease.read() == HELD


async def test_receipts_and_leases_are_separate(store: VectorStore) -> None:
    lease, receipts = LeaseStore(store, "operations"), ReceiptStore(store, "operations")
    await lease.make(HELD)
    written = await receipts.add(Receipt("", ReceiptKind.EXPIRY, "schedule", 1, 2))
    assert await receipts.newest() == [written]
    assert await lease.read() == HELD


ZONES = [
    "UTC",
    "Asia/Shanghai",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour
    "America/Sao_Paulo",  # at midnight, until 2019
    "Africa/Casablanca",  # back for Ramadan
    "Pacific/Apia",  # left out 2011-12-30
    "Pacific/Kwajalein",  # left out 1993-08-21
    "America/Scoresbysund",
    "Antarctica/Troll",  # two hours
    "Asia/Gaza",
    "Africa/Monrovia",  # 44 minutes and 30 seconds in 1972
]
NO_SUCH_DAY = {("Pacific/Apia", date(2011, 12, 30)), ("Pacific/Kwajalein", date(1993, 8, 21))}


def slots(cron: str, zone: str) -> LocalSlots:
    return slots_of(cron, zone_named(zone))


def between(schedule: LocalSlots, begin: datetime, end: datetime) -> Iterator[datetime]:
    slot = schedule.after(us_of(begin) - 1)
    while slot is not None and slot < us_of(end):
        yield moment_at(slot)
        slot = schedule.after(slot)


def local(moment: str, zone: str) -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone))


def of_day(cron: str, zone: str, day: str) -> list[str]:
    begin = local(day, zone)
    results = between(slots(cron, zone), begin, begin + timedelta(days=1))  # by the local calendar
    return [moment.astimezone(ZoneInfo(zone)).isoformat() for moment in results]


def day_of(shown: datetime, hour: int, minute: int) -> date:
    """The day of the slot: if the clocks skipped midnight, that of the previous day."""
    return shown.date() - timedelta(days=(hour, minute) > (shown.hour, shown.minute))


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        ("0 3 * * *", "Asia/Shanghai", "2025-03-09", ["2025-03-09T03:00:00+08:00"]),
        # skipped: 02:00 to 03:00, 02:00 to 02:30, 00:00 to 01:00
        ("30 2 * * *", "America/New_York", "2025-03-09", ["2025-03-09T03:00:00-04:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-05", ["2025-10-05T02:30:00+11:00"]),
        ("30 0 * * *", "America/Sao_Paulo", "2018-11-04", ["2018-11-04T01:00:00-02:00"]),
        ("*/20 2 * * *", "America/New_York", "2025-03-09", ["2025-03-09T03:00:00-04:00"]),
        # twice: the first counts
        ("30 1 * * *", "America/New_York", "2025-11-02", ["2025-11-02T01:30:00-04:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-06", ["2025-04-06T01:45:00+11:00"]),
        # over midnight: the slot of the 29th, and the one of the 30th
        (
            "30 23 * * *",
            "America/Scoresbysund",
            "2025-03-30",
            ["2025-03-30T00:00:00-01:00", "2025-03-30T23:30:00-01:00"],
        ),
        # the previous day was skipped
        ("0 3 * * *", "Pacific/Apia", "2011-12-31", ["2011-12-31T03:00:00+14:00"]),
    ],
)
def test_a_skipped_or_repeated_time_gives_one_slot(
    cron: str, zone: str, day: str, expected: list[str]
) -> None:
    """Discriminates: APScheduler's own interpretation: two slots in New York, none in Sao Paulo."""
    assert of_day(cron, zone, day) == expected


daily = st.tuples(st.integers(0, 59), st.integers(0, 23))


@settings(max_examples=150, deadline=None)
@given(daily, st.sampled_from(ZONES), st.integers(1971, 2036), st.integers(0, 300))
def test_a_daily_schedule_has_one_slot_on_each_local_day(
    time: tuple[int, int], zone: str, year: int, day: int
) -> None:
    """Discriminates: fold=1, fold=0 for a skipped time, a slot for each occurrence."""
    minute, hour = time
    begin = datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=day)
    results = list(between(slots(f"{minute} {hour} * * *", zone), begin, begin + timedelta(days=66)))
    days = [day_of(moment.astimezone(ZoneInfo(zone)), hour, minute) for moment in results]
    for one, next_ in pairwise(days):
        missing = {(zone, one + timedelta(days=n)) for n in range(1, (next_ - one).days)}
        assert next_ > one
        assert missing <= NO_SUCH_DAY
    for moment in results:
        shown = moment.astimezone(ZoneInfo(zone))
        leapt = shown.utcoffset() != (moment - timedelta(seconds=1)).astimezone(ZoneInfo(zone)).utcoffset()
        assert (shown.minute, shown.hour) == (minute, hour) or leapt


crons = st.sampled_from(
    ["* * * * *", "*/15 * * * *", "0 */6 * * *", "30 1,2,3 * * *", "0 3 * * 0", "0 3 1 * *", "30 2 29 2 *"]
)


@settings(max_examples=150, deadline=None)
@given(crons, st.sampled_from(ZONES), st.integers(400_000_000, 2_000_000_000), st.integers(0, 999_999))
def test_the_newest_slot_is_the_last_before_the_next_one_for_any_worker_at_any_time(
    cron: str, zone: str, second: int, microsecond: int
) -> None:
    """Workers whose clocks differ compute the same slots. Discriminates: `newest` by the time of the call."""
    schedule = slots(cron, zone)
    now = second * 1_000_000 + microsecond
    newest, later = schedule.newest(now), schedule.after(now)
    assert newest is not None
    assert later is not None
    assert newest <= now < later
    assert schedule.after(newest) == later
    assert schedule.newest(later - 1) == newest
    assert schedule.newest(later) == later


@settings(max_examples=300, deadline=None)
@given(st.datetimes(datetime(1972, 1, 1), datetime(2037, 1, 1)), st.sampled_from(ZONES))
def test_later_local_times_never_give_earlier_slots(reading: datetime, zone: str) -> None:
    """Discriminates: shifting skipped times by the jump, so that 02:30 comes after 03:00."""
    existing = ZoneInfo(zone)
    for step in (timedelta(minutes=1), timedelta(minutes=29), timedelta(hours=1), timedelta(days=1)):
        assert first_moment(reading, existing) <= first_moment(reading + step, existing)


def test_a_clock_set_back_after_a_failure_does_not_delay_the_next_attempt() -> None:
    """Discriminates: a slot that waits until the time of its failure is reached again, and longer."""
    clocks = Clocks()
    watch = ClockWatch(clocks.wall, clocks.boot_us)
    due = DueSlot(Every(86_400), Pace(), clocks.wall, watch, clocks.steady)
    slot = due.newest()
    due.observe(LeaseRecord("failed", slot=slot, attempts=1, failed_us=clocks.wall_us))
    assert due.slot() is None
    clocks.wall_us -= HOUR_US
    assert (due.newest(), due.slot()) == (slot, slot)
