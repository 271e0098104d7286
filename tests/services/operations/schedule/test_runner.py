"""One run per slot, whoever sleeps, dies or has a wrong clock (RELIABILITY F29, F30, F31)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from core.errors import ConflictError, StoreUnavailableError
from tests.support.servers.slot_workers import DAILY, PACE, UnreachableLease, Workers
from tests.support.stores.schedule import REPORT, SECOND_US


@pytest.fixture
async def workers() -> Workers:
    workers = Workers()
    await workers.start().refresh()
    return workers


async def test_a_new_store_has_nothing_to_make_up_for() -> None:
    """Discriminates: a record that begins with slot 0."""
    workers = Workers()
    runner = workers.start()
    await workers.advance(runner, 600)
    assert workers.job.slots == []
    workers.to_slot()
    await runner.run()
    await workers.advance(runner, 86_000)
    assert workers.job.slots == [DAILY.newest(workers.clocks.wall_us)]


async def test_what_was_missed_while_the_server_was_down_is_made_up_by_one_run(workers: Workers) -> None:
    workers.clocks.pass_s(10 * 86_400)
    for _ in range(3):  # as many starts as there are
        await workers.advance(workers.start(), 600)
    assert workers.job.slots == [DAILY.newest(workers.clocks.wall_us)]


async def test_a_machine_that_slept_over_several_slots_runs_once_when_it_wakes(workers: Workers) -> None:
    runner = workers.start()
    await runner.look()
    workers.clocks.pass_s(3 * 86_400, asleep=True)
    await workers.advance(runner, 600)
    assert workers.job.slots == [DAILY.newest(workers.clocks.wall_us)]


async def test_of_several_workers_one_runs_each_slot(workers: Workers) -> None:
    """Their clocks differ by seconds. Discriminates: a claim without a condition, a slot named by its run."""
    running = [workers.start(ahead_s=ahead_s) for ahead_s in (0, 4, -4, 0.5)]
    for _ in range(5):
        workers.to_slot()
        workers.clocks.pass_s(-3)
        for _ in range(8):
            await asyncio.gather(*[runner.run() for runner in running])
            workers.clocks.pass_s(1)
    assert len(workers.job.slots) == len(set(workers.job.slots)) == 5
    assert workers.job.ended == workers.job.slots


async def test_a_slot_that_a_dead_worker_began_is_begun_again_within_two_leases(workers: Workers) -> None:
    """Discriminates: no takeover, and one without waiting."""
    workers.to_slot()
    dead = await workers.start()._claim()  # and nothing more is heard of it
    assert dead is not None
    other = workers.start()
    await other.look()
    await workers.advance(other, PACE.lease_s - 1)
    assert workers.job.slots == []
    await workers.advance(other, PACE.lease_s + 1)
    assert workers.job.ended == [dead.slot]


async def test_a_worker_that_has_long_been_up_leaves_a_running_slot_to_its_holder(workers: Workers) -> None:
    """Discriminates: the wait counted from the worker's start, not from the record's last change."""
    other = workers.start()
    await other.look()
    workers.clocks.pass_s(2 * PACE.lease_s)
    workers.to_slot()
    held = await workers.start()._claim()
    assert held is not None
    await workers.advance(other, PACE.lease_s / 2)
    assert workers.job.slots == []


async def test_a_run_that_takes_longer_than_its_lease_is_cut_and_never_goes_on_beside_another(
    workers: Workers,
) -> None:
    """Discriminates: a run without an end."""
    workers.job.seconds = 60
    _, running = await workers.begin(lease_s=0.2)
    other = workers.start(steady=time.monotonic)
    while not running.done():
        await other.run()
        await asyncio.sleep(0.02)  # the pace at which another worker looks
    with pytest.raises(TimeoutError):
        await running
    assert (len(workers.job.slots), workers.job.most_at_once, workers.job.at_once) == (1, 1, 0)
    stored = await workers.lease.read()
    assert stored is not None
    assert (stored.last_error, stored.holder, stored.last_slot < stored.slot) == ("TimeoutError", "", True)


async def test_a_worker_that_lost_its_lease_changes_nothing_of_the_others(workers: Workers) -> None:
    """It was stopped for longer than its lease, and another one has taken over."""
    workers.job.seconds = 0.1
    _, running = await workers.begin(lease_s=5)
    seen = await workers.lease.read()
    assert seen is not None
    taken = replace(seen, token="other", holder="other:1")
    await workers.lease.swap(seen, taken)
    with capture_logs() as logs:
        await asyncio.wait_for(running, 2)
    assert "cleanup_lost" in {entry["event"] for entry in logs}
    assert await workers.lease.read() == taken


async def test_a_run_that_is_stopped_by_a_shutdown_gives_its_slot_back(workers: Workers) -> None:
    workers.to_slot()
    workers.job.seconds = 60
    for _ in range(5):  # more often than it may fail
        running = asyncio.create_task(workers.start().run())
        await asyncio.sleep(0.01)  # it is under way when it is cancelled
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    workers.job.seconds = 0
    await workers.start().run()
    assert len(workers.job.slots) == 6
    assert len(workers.job.ended) == 1


async def test_a_failure_is_tried_again_after_a_quarter_of_an_hour_three_times_in_all(
    workers: Workers,
) -> None:
    runner = workers.start()
    workers.to_slot()
    slot = DAILY.newest(workers.clocks.wall_us)
    workers.job.errors = [StoreUnavailableError("The store does not answer.") for _ in range(3)]
    began: list[int] = []
    for _ in range(200):
        workers.clocks.pass_s(30)
        if await runner.look():
            with pytest.raises(StoreUnavailableError):
                await runner.run()
            began.append((workers.clocks.wall_us - slot) // (60 * SECOND_US))
    assert began == [0, 15, 30]
    assert runner.record is not None
    assert (runner.record.last_slot, runner.record.last_error) == (slot, "StoreUnavailableError")
    workers.to_slot()
    await runner.run()
    assert workers.job.ended == [DAILY.newest(workers.clocks.wall_us)]
    assert (runner.record.last_error, runner.record.last_result) == ("", replace(REPORT, sessions={}))


async def test_a_run_that_is_refused_keeps_the_reason_for_the_operator(workers: Workers) -> None:
    """Discriminates: "ConflictError", which nobody can act on."""
    workers.to_slot()
    workers.job.errors = [ConflictError("The clock was put forward.")]
    runner = workers.start()
    with pytest.raises(ConflictError):
        await runner.run()
    assert runner.record is not None
    assert runner.record.last_error == "The clock was put forward."


async def test_a_slot_that_kills_its_workers_is_given_up(workers: Workers) -> None:
    """Discriminates: no count of the attempts."""
    workers.to_slot()
    for _ in range(3):
        runner = workers.start()
        await runner.look()
        workers.clocks.pass_s(PACE.lease_s + 1)
        assert await runner._claim() is not None  # it dies of it
    last = workers.start()
    with capture_logs() as logs:
        await workers.advance(last, PACE.lease_s + 600)
    assert workers.job.slots == []
    assert [entry["event"] for entry in logs] == ["cleanup_given_up"]
    assert last.record is not None
    assert last.record.last_error == "WorkerDied"


async def test_a_store_that_is_away_when_the_slot_comes_is_asked_again(workers: Workers) -> None:
    lease = UnreachableLease(workers.lease, unreachable=True)
    workers.lease = lease
    runner = workers.start()
    workers.to_slot()
    with capture_logs() as logs:
        assert await runner.run() is None
    assert [entry["event"] for entry in logs] == ["cleanup_postponed"]
    await workers.advance(runner, 3_600)
    lease.unreachable = False
    await workers.advance(runner, 600)
    assert len(workers.job.ended) == 1


async def test_a_result_whose_answer_was_lost_is_not_taken_for_another_workers(workers: Workers) -> None:
    """Discriminates: a new token for each try."""
    workers.job.seconds = 0.05
    workers.lease = lease = UnreachableLease(workers.lease)
    runner, running = await workers.begin(lease_s=0.6)
    lease.unreachable = lease.late = True
    await asyncio.sleep(0.15)
    lease.unreachable = lease.late = False
    with capture_logs() as logs:
        assert await running is not None
    assert logs == []
    assert runner.record is not None
    assert (runner.record.last_slot, runner.record.holder) == (workers.job.ended[0], "")


async def test_a_result_that_cannot_be_stored_at_once_is_stored_later(workers: Workers) -> None:
    """Discriminates: one try; then the slot would be run again."""
    workers.job.seconds = 0.05
    workers.lease = lease = UnreachableLease(workers.lease)
    _, running = await workers.begin(lease_s=0.6)
    lease.unreachable = True
    await asyncio.sleep(0.15)  # one sign of life is missed, and the lease still holds
    lease.unreachable = False
    await running
    stored = await lease.read()
    assert stored is not None
    assert (stored.last_slot, stored.holder) == (workers.job.ended[0], "")
