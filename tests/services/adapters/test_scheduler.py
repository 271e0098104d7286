"""The nightly clean-up: real APScheduler, short intervals (RELIABILITY F30)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.interval import IntervalTrigger
from structlog.testing import capture_logs

from core.errors import StartRefusedError, StoreUnavailableError
from services.adapters.scheduler import CronSchedule, open_schedule, run_on
from services.retention import ExpiryReport

REPORT = ExpiryReport("2024-01-01T00:00:00.000000Z", 30, False, 10, 3, 3, {"s": 3}, 7)


def every(seconds: float) -> IntervalTrigger:
    return IntervalTrigger(seconds=seconds, timezone=UTC)


async def eventually(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def next_run(cron: str, zone: str) -> str:
    async def job() -> ExpiryReport:
        return REPORT

    async with open_schedule(job, cron, zone) as schedule:
        return schedule.state().next_run or ""


async def test_the_job_runs_and_its_result_is_shown() -> None:
    async def job() -> ExpiryReport:
        return REPORT

    async with run_on(job, every(0.05), "0 3 * * *", "UTC") as schedule:
        await eventually(lambda: schedule.state().last_run is not None)
        state = schedule.state()
    assert (state.last_result, state.last_error) == (REPORT, None)
    assert datetime.fromisoformat(state.next_run or "") > datetime.fromisoformat(
        state.last_run or ""
    ) - timedelta(seconds=5)
    assert asdict(state)["last_result"]["deleted"] == 3


async def test_runs_that_were_missed_are_made_up_by_one() -> None:
    """Red without coalesce: the loop stood still for ten periods."""
    runs: list[float] = []

    async def job() -> ExpiryReport:
        runs.append(time.monotonic())
        return REPORT

    async with run_on(job, every(0.3), "", ""):
        await eventually(lambda: len(runs) == 1)
        time.sleep(3)  # noqa: ASYNC251 - the process sleeps, as a stopped machine does
        await asyncio.sleep(0.1)
        assert len(runs) == 2


async def test_a_run_that_takes_longer_than_the_period_is_not_overtaken() -> None:
    """Red without max_instances=1."""
    running: list[int] = []
    most: list[int] = []

    async def job() -> ExpiryReport:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.3)
        running.pop()
        return REPORT

    with capture_logs() as logs:
        async with run_on(job, every(0.05), "", ""):
            await eventually(lambda: len(most) >= 2)
    assert set(most) == {1}
    assert "cleanup_skipped" in {entry["event"] for entry in logs}


async def test_a_run_that_fails_is_logged_and_the_next_one_comes() -> None:
    calls: list[int] = []

    async def job() -> ExpiryReport:
        calls.append(1)
        if len(calls) == 1:
            raise StoreUnavailableError("The store does not answer.")
        return REPORT

    errors: list[str | None] = []

    def failed(schedule: CronSchedule) -> bool:
        errors.append(schedule.state().last_error)
        return "StoreUnavailableError" in errors

    with capture_logs() as logs:
        async with run_on(job, every(0.1), "", "") as schedule:
            await eventually(lambda: failed(schedule))
            await eventually(lambda: schedule.state().last_result == REPORT)
            assert schedule.state().last_error is None
    assert "cleanup_failed" in {entry["event"] for entry in logs}


async def test_closing_ends_a_run_that_is_under_way() -> None:
    ended: list[str] = []

    async def job() -> ExpiryReport:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return REPORT

    async with run_on(job, every(0.05), "", ""):
        await asyncio.sleep(0.2)
    await eventually(lambda: bool(ended))


async def test_the_time_zone_is_the_one_configured() -> None:
    assert (await next_run("0 3 * * *", "Asia/Shanghai")).endswith("T03:00:00+08:00")


@pytest.mark.parametrize(
    ("weekdays", "named"),
    [("0", {6}), ("7", {6}), ("1", {0}), ("1-1", {0}), ("mon", {0}), ("0,6", {5, 6}), ("5-7", {4, 5, 6})],
)
async def test_weekdays_are_counted_as_crontab_does(weekdays: str, named: set[int]) -> None:
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


async def test_without_a_time_zone_the_machines_is_taken() -> None:
    assert await next_run("0 3 * * *", "")
