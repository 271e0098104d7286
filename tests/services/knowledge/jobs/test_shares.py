"""Admission and waiting: no owner holds all slots, small ones go early, old ones go eventually."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from core.errors import TooManyUploadsError
from services.knowledge.jobs.lanes import HOUR_S, MIN_RETRY_S, PATIENCE_BYTES, CpuHours, Shares


class Line:
    """Callers that hold their share until released, and the order in which they were admitted."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._free: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.inside: list[str] = []

    async def come(self, name: str, owner: str, size_bytes: int = 0, amount: int = 1) -> None:
        self._free[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._hold(name, owner, size_bytes, amount))
        await asyncio.sleep(0)

    async def _hold(self, name: str, owner: str, size_bytes: int, amount: int) -> None:
        async with self._shares.hold(owner, amount, size_bytes):
            self.inside.append(name)
            await self._free[name].wait()

    async def go(self, name: str) -> None:
        self._free[name].set()
        await self._tasks[name]
        await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await asyncio.sleep(0)

    async def close(self) -> None:
        for name in self._tasks:
            await self.leave(name)


async def test_one_owner_never_holds_all(request: pytest.FixtureRequest) -> None:
    """Discriminates: first come, first served (RELIABILITY F41)."""
    async with AsyncExitStack() as stack:
        line = Line(Shares(3, 2))
        stack.push_async_callback(line.close)
        for number in range(5):
            await line.come(f"a{number}", "alice")
        await line.come("b", "bob")
        assert line.inside == ["a0", "a1", "b"]


async def test_the_owner_holding_least_is_next_and_then_the_smallest() -> None:
    """Discriminates: no order by owner; no order by size."""
    async with AsyncExitStack() as stack:
        line = Line(Shares(2, 2))
        stack.push_async_callback(line.close)
        await line.come("a0", "alice")
        await line.come("a1", "alice")
        await line.come("a-small", "alice", 1)
        await line.come("b-large", "bob", 2_000)
        await line.come("b-small", "bob", 1_000)
        await line.go("a0")
        await line.go("a1")
        assert line.inside[2:] == ["b-small", "a-small"]


async def test_waiting_improves_the_rank() -> None:
    """Discriminates: an order by size alone, in which a large file waits for ever."""
    async with AsyncExitStack() as stack:
        line = Line(Shares(1, 1))
        stack.push_async_callback(line.close)
        await line.come("first", "alice")
        await line.come("old", "alice", PATIENCE_BYTES // 10)
        await asyncio.sleep(0.15)  # the age that is its advantage
        await line.come("new", "alice", 1)
        await line.go("first")
        assert line.inside == ["first", "old"]


async def test_a_caller_that_leaves_frees_its_share_at_once() -> None:
    async with AsyncExitStack() as stack:
        line = Line(Shares(1, 1))
        stack.push_async_callback(line.close)
        await line.come("inside", "alice")
        await line.come("waiting", "alice")
        await line.come("patient", "bob")
        await line.leave("waiting")
        await line.leave("inside")
        assert line.inside == ["inside", "patient"]


async def test_a_large_amount_is_not_bypassed_and_an_impossible_one_is_reduced() -> None:
    async with AsyncExitStack() as stack:
        line = Line(Shares(10, 6))
        stack.push_async_callback(line.close)
        await line.come("a", "alice", amount=100)
        await line.come("b", "bob", amount=5)
        await line.come("c", "carol", amount=1)
        assert line.inside == ["a"]
        await line.go("a")
        assert line.inside == ["a", "b", "c"]


async def test_a_wait_that_times_out_is_refused_as_retryable() -> None:
    shares = Shares(1, 1)
    async with shares.hold("alice"):
        with pytest.raises(TooManyUploadsError) as refused:
            async with shares.hold("bob", patience_s=0.01):
                raise AssertionError
    assert refused.value.retryable
    assert refused.value.retry_after_s == MIN_RETRY_S
    async with shares.hold("bob", patience_s=0.01):
        pass


def test_an_owners_processor_time_is_limited_by_the_hour() -> None:
    """Discriminates: a sum over all owners; one that never ends; a retry time before it has ended."""
    now_s = 0.0
    hours = CpuHours(100, lambda: now_s)
    for _ in range(4):
        hours.check("alice")
        hours.charge("alice", 30)
    now_s = 60.0
    with pytest.raises(TooManyUploadsError) as refused:
        hours.check("alice")
    assert refused.value.retry_after_s == HOUR_S - 60
    hours.check("bob")
    now_s = HOUR_S + 1
    hours.check("alice")


def test_without_keys_nothing_is_counted() -> None:
    hours = CpuHours()
    hours.charge("local", 1e9)
    hours.check("local")


async def test_a_refusals_retry_time_is_when_shares_usually_become_free() -> None:
    """Discriminates: two seconds, whatever is being ingested."""
    shares = Shares(1, 1, min_retry_s=0.001)
    async with shares.hold("alice"):
        await asyncio.sleep(0.1)  # the time it is held is what is measured
    async with shares.hold("alice"):
        with pytest.raises(TooManyUploadsError) as refused:
            async with shares.hold("bob", patience_s=0.01):
                raise AssertionError
    assert refused.value.retry_after_s > 0.01
