from __future__ import annotations

import asyncio
import time

from services.store.clock import PAUSE_S, Activity, ClockWatch, boot_us
from tests.support.stores.schedule import HOUR_US, Clocks


def watched() -> tuple[Clocks, ClockWatch]:
    clocks = Clocks()
    return clocks, ClockWatch(clocks.wall, clocks.boot_us)


def test_time_that_passes_awake_or_asleep_is_not_a_step() -> None:
    """Discriminates: the monotonic clock instead of the boot clock."""
    clocks, watch = watched()
    clocks.pass_s(7 * 3_600)
    clocks.pass_s(9 * 3_600, asleep=True)
    assert watch.moved_us() == 0


def test_a_clock_set_forward_stays_so_until_it_is_trusted() -> None:
    clocks, watch = watched()
    clocks.wall_us += 5 * HOUR_US
    clocks.pass_s(60)
    assert [watch.moved_us(), watch.moved_us()] == [5 * HOUR_US, 5 * HOUR_US]
    watch.trust()
    assert watch.moved_us() == 0


def test_a_clock_set_back_is_trusted_from_then_on() -> None:
    """Set back and forward again counts as forward: nobody knows which time is right."""
    clocks, watch = watched()
    clocks.wall_us -= 5 * HOUR_US
    assert [watch.moved_us(), watch.moved_us()] == [-5 * HOUR_US, 0]
    clocks.wall_us += 5 * HOUR_US
    assert watch.moved_us() == 5 * HOUR_US


def test_the_boot_clock_of_this_machine_goes_forward() -> None:
    assert 0 < boot_us() <= boot_us()


async def test_the_server_is_quiet_when_the_last_request_has_ended() -> None:
    activity = Activity()
    await activity.quiet(5)
    with activity.busy():
        with activity.busy():
            pass
        waiting = asyncio.create_task(activity.quiet(5))
        await asyncio.sleep(0.01)  # it has begun to wait
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)


async def test_a_pause_that_is_too_short_is_not_quiet() -> None:
    """Discriminates: counting as quiet as soon as nothing is running: an immediate next request meets the
    waiting work."""
    activity = Activity()
    with activity.busy():
        waiting = asyncio.create_task(activity.quiet(5))
    await asyncio.sleep(PAUSE_S / 4)
    assert not waiting.done()
    with activity.busy():
        await asyncio.sleep(2 * PAUSE_S)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)


async def test_waiting_for_quiet_has_an_end() -> None:
    activity, begun = Activity(), time.monotonic()
    with activity.busy():
        await activity.quiet(0.05)
    assert time.monotonic() - begun < 1
