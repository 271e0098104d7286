"""The nightly clean-up: real APScheduler, short intervals and moved clocks (RELIABILITY F29, F30, F31)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from structlog.testing import capture_logs

from core.errors import ConflictError, StartRefusedError, StoreUnavailableError
from core.operations.expiry import ExpiryReport
from services.adapters.schedule import open_schedule, open_sync_schedule, run_on, sync_slots
from services.operations.schedule.lease import Lease, LeaseRecord, LeaseStore, Pace
from services.operations.schedule.runner import CleanupSchedule, SlotRunner
from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store
from tests.support.stores.schedule import REPORT, CountingJob, Every, MemoryLease, make_operations
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)
QUICK = Pace(lease_s=1, first_look_s=0.05, look_s=0.2, retry_s=0.1)


@asynccontextmanager
async def scheduled(
    job: CountingJob, seconds: float, lease: Lease | None = None
) -> AsyncIterator[CleanupSchedule]:
    slots = Every(seconds)
    runner = SlotRunner(job, slots, lease or MemoryLease(), QUICK)
    async with run_on(runner, slots):
        yield CleanupSchedule(runner, slots, "", UTC)


async def clean_up() -> ExpiryReport:
    return REPORT


async def next_run(cron: str, zone: str) -> str:
    async with open_schedule(clean_up, cron, zone, MemoryLease()) as schedule:
        return schedule.state().next_run or ""


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        yield opened


async def test_the_job_runs_and_its_result_is_shown_without_the_ids_of_sessions() -> None:
    async with scheduled(CountingJob(), 0.2) as schedule:
        assert schedule.state().last_run is None
        await until(lambda: schedule.state().last_run is not None)
        state = schedule.state()
    assert state.last_error is None
    assert asdict(state)["last_result"] == asdict(REPORT) | {"sessions": {}}
    assert datetime.fromisoformat(state.next_run or "") > datetime.fromisoformat(state.last_slot or "")
    assert datetime.fromisoformat(state.last_run or "") >= datetime.fromisoformat(state.last_slot or "")


async def test_missed_runs_are_caught_up_by_one() -> None:
    """Discriminates: a run for each missed slot. The loop was blocked for three of them."""
    job = CountingJob()
    async with scheduled(job, 0.5):
        await until(lambda: bool(job.slots))
        time.sleep(1.6)  # noqa: ASYNC251 - the process sleeps, as a stopped machine does
        observed = len(job.slots)
        await until(lambda: len(job.slots) > observed)
    assert job.slots[observed] - job.slots[observed - 1] >= 1_500_000


async def test_a_run_longer_than_the_period_does_not_overlap_the_next() -> None:
    """Discriminates: max_instances=2 and a claim that does not check whether this worker already runs."""
    job = CountingJob(seconds=0.3)
    with capture_logs() as logs:
        async with scheduled(job, 0.05):
            await until(lambda: len(job.slots) >= 3)
    assert job.most_at_once == 1
    assert "cleanup_skipped" in {entry["event"] for entry in logs}


async def test_the_state_shows_a_current_run_and_its_worker() -> None:
    job = CountingJob(seconds=0.3)
    async with scheduled(job, 0.2) as schedule:
        await until(lambda: job.at_once == 1)
        state = schedule.state()
        assert state.running
        assert (state.holder or "").rpartition(":")[2].isdigit()
        await until(lambda: bool(job.ended))
    assert not schedule.state().running


async def test_a_failed_run_is_logged_and_the_next_one_takes_place(caplog: pytest.LogCaptureFixture) -> None:
    """Discriminates: a traceback outside the log, which breaks readers of JSON lines."""
    job = CountingJob(errors=[StoreUnavailableError("The store does not answer.")])
    with capture_logs() as logs:
        async with scheduled(job, 0.3) as schedule:
            await until(lambda: schedule.state().last_error == "StoreUnavailableError")
            await until(lambda: schedule.state().last_result is not None)
            assert schedule.state().last_error is None
    failed = [entry for entry in logs if entry["event"] == "cleanup_failed"]
    assert [(entry["error"], entry["reason"]) for entry in failed] == [
        ("StoreUnavailableError", "The store does not answer.")
    ]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_closing_ends_a_current_run_before_the_store_closes() -> None:
    """Discriminates: APScheduler's shutdown alone, which does not wait."""
    job = CountingJob(seconds=60)
    with capture_logs() as logs:
        async with scheduled(job, 0.1) as schedule:
            await until(lambda: job.at_once == 1)
    assert (job.at_once, job.ended) == (0, [])
    assert not schedule.state().running
    assert "cleanup_failed" not in {entry["event"] for entry in logs}


# ---- what was missed, and the clock -----------------------------------------------------------------


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_runs_missed_while_the_server_was_down_are_caught_up_once(store: VectorStore) -> None:
    """On a store that recorded earlier runs; a new one has nothing to catch up."""
    lease = LeaseStore(store, "operations")
    runs: list[str] = []

    async def job() -> ExpiryReport:
        runs.append(datetime.now(UTC).date().isoformat())
        return REPORT

    async def start(day: str, *, runs_expected: int) -> str | None:
        with time_machine.travel(f"{day}T12:00:00+00:00"):
            async with open_schedule(job, "0 3 * * *", "UTC", lease, pace=QUICK) as schedule:
                await until(lambda: len(runs) == runs_expected and schedule.state().last_slot is not None)
                await asyncio.sleep(0.3)  # in which an extra run would start
                return (await schedule.current()).last_slot

    await make_operations(store)
    assert await start("2025-03-01", runs_expected=0) == "2025-03-01T03:00:00.000000Z"
    for _ in range(2):
        assert await start("2025-03-09", runs_expected=1) == "2025-03-09T03:00:00.000000Z"
    assert runs == ["2025-03-09"]


async def test_the_schedule_opens_before_its_collection_is_created(tmp_path: Path) -> None:
    job = CountingJob()
    async with (
        open_store("edge", tmp_path) as store,
        scheduled(job, 0.3, LeaseStore(store, "operations")) as schedule,
    ):
        await asyncio.sleep(0.5)  # a slot is due, and its collection does not exist
        assert (await schedule.current()).last_slot is None
        await make_operations(store)
        await until(lambda: bool(job.ended))


KILLED = LeaseRecord("killed", holder="before:1", slot=5, attempts=1, last_slot=4)


@pytest.mark.parametrize("left", [None, KILLED])
async def test_a_process_alone_with_its_store_waits_for_no_other(
    tmp_path: Path, left: LeaseRecord | None
) -> None:
    """Discriminates: an hour without a run after a new store was created, or after a run was killed."""
    job, slots = CountingJob(), Every(0.3)
    async with open_store("edge", tmp_path) as store:
        await make_operations(store)
        lease = LeaseStore(store, "operations")
        if left:
            await lease.make(left)
        runner = SlotRunner(job, slots, lease, replace(QUICK, lease_s=3_600, alone=True))
        async with run_on(runner, slots):
            await until(lambda: len(job.ended) > 1)
    assert job.most_at_once == 1


async def test_a_run_takes_place_after_a_sleep_that_no_timer_counted() -> None:
    """The wall clock jumps by an hour, the loop's does not. Discriminates: no regular checks of the clock."""
    job = CountingJob()
    begin = datetime(2025, 3, 1, 2, 50, tzinfo=UTC)
    with time_machine.travel(begin) as traveller:
        async with scheduled(job, 3_600):
            await asyncio.sleep(0.2)  # the schedule has looked at the clock
            traveller.shift(timedelta(minutes=30))
            await until(lambda: bool(job.ended), limit_s=3)
            await asyncio.sleep(0.5)  # in which a second run would begin
    assert len(job.slots) == 1


async def test_a_clock_that_jumps_by_hours_postpones_the_slot_and_the_state_says_so() -> None:
    job = CountingJob()
    with time_machine.travel(datetime(2025, 3, 1, 2, 50, tzinfo=UTC)) as traveller, capture_logs() as logs:
        async with scheduled(job, 86_400) as schedule:
            await asyncio.sleep(0.2)  # the schedule has looked at the clock
            traveller.shift(timedelta(hours=30))
            await until(lambda: schedule.state().skipped is not None, limit_s=3)
            assert "30.0 hours" in (schedule.state().skipped or "")
            traveller.shift(timedelta(hours=-30))
            await asyncio.sleep(0.5)  # in which a run would begin
    assert job.slots == []
    assert [entry["event"] for entry in logs] == ["cleanup_put_off"]


async def test_a_clock_that_is_set_back_does_not_stop_the_schedule() -> None:
    """Discriminates: showing APScheduler's own next time, hours ahead."""
    job = CountingJob()
    with time_machine.travel(datetime(2025, 3, 9, 2, 50, tzinfo=UTC)) as traveller:
        async with scheduled(job, 3_600) as schedule:
            await asyncio.sleep(0.2)  # the schedule has looked at the clock
            traveller.shift(timedelta(hours=-5))
            await asyncio.sleep(0.5)  # and has looked again
            assert job.slots == []
            assert schedule.state().next_run == "2025-03-08T22:00:00+00:00"


# ---- the crontab line and the time zone --------------------------------------------------------------


async def test_the_time_zone_is_the_one_configured() -> None:
    assert (await next_run("0 3 * * *", "Asia/Shanghai")).endswith("T03:00:00+08:00")


@pytest.mark.parametrize(
    ("weekdays", "named"),
    [("0", {6}), ("7", {6}), ("1", {0}), ("1-1", {0}), ("mon", {0}), ("0,6", {5, 6}), ("5-7", {4, 5, 6})],
)
async def test_weekdays_are_numbered_as_in_crontab(weekdays: str, named: set[int]) -> None:
    """Red when left to APScheduler, where 0 is Monday."""
    moment = datetime.fromisoformat(await next_run(f"0 3 * * {weekdays}", "UTC"))
    assert moment.weekday() in named


@pytest.mark.parametrize("cron", ["", "x", "0 3 * *", "61 3 * * *", "0 3 * * 8", "0 3 * * 5-2", "0 3 30 2 *"])
async def test_a_bad_crontab_line_is_refused_in_one_line(cron: str) -> None:
    with pytest.raises(StartRefusedError, match="CLEANUP_CRON") as refused:
        await next_run(cron, "UTC")
    assert repr(cron) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "UTC+8 "])
async def test_an_unknown_time_zone_is_refused_in_one_line(zone: str) -> None:
    with pytest.raises(StartRefusedError, match="TIMEZONE") as refused:
        await next_run("0 3 * * *", zone)
    assert repr(zone) in str(refused.value)


async def test_without_a_time_zone_the_machines_is_used() -> None:
    assert await next_run("0 3 * * *", "")


NEVER = "0 0 1 1 *"


class Job:
    """Counts its runs, how many ran concurrently, and how many were cancelled."""

    def __init__(self, takes_s: float = 0, error: Exception | None = None) -> None:
        self._takes_s = takes_s
        self._error = error
        self.began = self.ended = self.cancelled = self.running = self.most = 0

    async def __call__(self) -> None:
        self.began += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._takes_s)
            if self._error:
                raise self._error
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        self.ended += 1


async def test_the_sync_runs_in_the_background_at_the_start_unless_disabled() -> None:
    job = Job()
    async with open_sync_schedule(job, sync_slots(NEVER, None)):
        assert job.began == 0
        await until(lambda: job.ended)
        assert job.ended == 1
    idle = Job()
    async with open_sync_schedule(idle, None, at_start=False):
        await asyncio.sleep(0.05)  # in which a run at the start would begin
    assert idle.began == 0


async def test_runs_never_overlap_and_continue_after_an_error() -> None:
    job = Job(takes_s=0.25)
    async with open_sync_schedule(job, Every(0.1)):
        await until(lambda: job.ended >= 2)
    assert job.most == 1
    assert job.ended >= 2
    failing = Job(error=ConflictError("another process"))
    with capture_logs() as logs:
        async with open_sync_schedule(failing, Every(0.1)):
            await until(lambda: failing.began >= 2)
    assert failing.began >= 2
    assert {entry["event"] for entry in logs} == {"sync_left_out"}


async def test_a_run_still_active_at_the_end_is_cancelled_and_awaited() -> None:
    job = Job(takes_s=60)
    async with open_sync_schedule(job, sync_slots(NEVER, None)):
        await until(lambda: job.running)
    assert (job.cancelled, job.running) == (1, 0)


@pytest.mark.parametrize("cron", ["nonsense", "61 * * * *", "0 0 31 2 *"])
def test_an_invalid_sync_cron_is_refused_in_one_line_that_names_it(cron: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^SYNC_CRON = .* is refused[^\n]*$"):
        sync_slots(cron, "UTC")


def test_an_empty_sync_cron_schedules_nothing() -> None:
    assert sync_slots(" ", None) is None
    assert sync_slots("*/10 * * * *", "Asia/Shanghai") is not None
