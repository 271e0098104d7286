from __future__ import annotations

import asyncio
import time

from services.store.activity import Activity


async def test_it_is_quiet_when_the_last_of_several_has_ended() -> None:
    activity = Activity()
    await activity.quiet(5)
    with activity.going_on():
        with activity.going_on():
            pass
        waiting = asyncio.create_task(activity.quiet(5))
        await asyncio.sleep(0.01)  # it has begun to wait
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)


async def test_waiting_for_quiet_has_an_end() -> None:
    activity, begun = Activity(), time.monotonic()
    with activity.going_on():
        await activity.quiet(0.05)
    assert time.monotonic() - begun < 1
