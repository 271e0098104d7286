"""A wrong clock deletes nothing, and holds nothing up for long (RELIABILITY F31)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.support.servers.slot_workers import DAILY, Workers
from tests.support.stores.schedule import DAY_US, HOUR_US, SECOND_US


@pytest.fixture
async def workers() -> Workers:
    workers = Workers()
    await workers.start().refresh()
    return workers


async def test_a_clock_put_forward_by_more_than_an_hour_costs_one_slot(workers: Workers) -> None:
    """Discriminates: running what the step leapt over; never trusting the clock again."""
    runner = workers.start()
    await runner.look()
    workers.clocks.wall_us = DAILY.after(workers.clocks.wall_us) + 2 * HOUR_US
    with capture_logs() as logs:
        await workers.advance(runner, 3_600)
    assert workers.job.slots == []
    assert [entry["event"] for entry in logs] == ["cleanup_put_off"]
    assert runner.record is not None
    assert (runner.record.skipped_slot, "hours" in runner.record.skipped) == (
        DAILY.newest(workers.clocks.wall_us),
        True,
    )
    await workers.advance(workers.start(), 3_600)  # nor after a restart, which knows nothing of the step
    assert workers.job.slots == []
    workers.to_slot()
    await runner.run()
    assert workers.job.ended == [DAILY.newest(workers.clocks.wall_us)]


async def test_a_slot_later_in_the_day_of_the_step_is_put_off_too(workers: Workers) -> None:
    workers.to_slot()
    workers.clocks.pass_s(22 * 3_600)
    runner = workers.start()
    await runner.run()
    workers.job.slots.clear()
    await runner.look()
    workers.clocks.wall_us += HOUR_US + 60 * SECOND_US
    await workers.advance(runner, 3_600)
    assert workers.job.slots == []


async def test_a_clock_that_was_put_forward_by_mistake_and_back_costs_none(workers: Workers) -> None:
    """Discriminates: a slot that stays put off although the clock is right again."""
    runner = workers.start()
    await runner.look()
    workers.clocks.wall_us += DAY_US
    await workers.advance(runner, 600)
    workers.clocks.wall_us -= DAY_US
    await workers.advance(runner, 600)
    assert workers.job.slots == []
    workers.to_slot()
    await workers.advance(runner, 600)
    assert workers.job.ended == [DAILY.newest(workers.clocks.wall_us)]


async def test_a_clock_that_is_set_back_runs_no_slot_again(workers: Workers) -> None:
    """Discriminates: asking what the last run was instead of whether the slot is done."""
    runner = workers.start()
    workers.to_slot()
    await runner.run()
    workers.clocks.wall_us -= 30 * HOUR_US
    await workers.advance(runner, 40 * 3_600)
    assert len(workers.job.slots) == 1
    await workers.advance(runner, 20 * 3_600)
    assert workers.job.slots == sorted(set(workers.job.slots))
    assert len(workers.job.slots) == 2


async def test_a_slot_that_a_wrong_clock_ran_years_ahead_holds_up_nothing(workers: Workers) -> None:
    """Discriminates: waiting for the clock to come where it was."""
    workers.clocks.pass_s(4_000 * 86_400)
    await workers.advance(workers.start(), 600)
    workers.clocks.wall_us -= 4_000 * DAY_US
    runner = workers.start()
    with capture_logs() as logs:
        await workers.advance(runner, 600)
    assert "cleanup_slot_ahead" in {entry["event"] for entry in logs}
    assert len(workers.job.slots) == 1
    workers.to_slot()
    await runner.run()
    assert workers.job.slots[1:] == [DAILY.newest(workers.clocks.wall_us)]
