"""The store's files are rewritten after an erasure: once for several, and a failure is reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence

import pytest

from config.settings import StoreSettings
from core.errors import DiskFullError
from services.operations.erasure.copies import PLACE, StoreFiles, touched
from services.store.dialect import Reclaimed
from tests.support.waiting import until


class Space:
    """Records what was rewritten; full, or on a Qdrant server, if so configured."""

    def __init__(self, *, server: bool = False) -> None:
        self.rewritten: list[list[str]] = []
        self.full = False
        self._server = server

    async def note(self, collections: Collection[str]) -> None: ...

    async def noted(self) -> list[str]:
        return ["left"]

    async def rewrite(self, collections: Sequence[str]) -> Reclaimed | None:
        await asyncio.sleep(0)
        if self.full:
            raise DiskFullError("the disk is full")
        self.rewritten.append(list(collections))
        return None if self._server else Reclaimed(2, 1)


async def test_an_immediate_rewrite_reports_how_many_were_rewritten() -> None:
    space = Space()
    reply = await StoreFiles(space).rewrite(["b", "a"])
    assert space.rewritten == [["a", "b"]]
    assert [(each.place, each.looked_at, each.hits) for each in reply.searched] == [(PLACE, 2, 0)]
    assert (reply.left, reply.failed) == ((), False)


@pytest.mark.parametrize("space", [None, Space(server=True)])
async def test_nothing_is_reported_if_the_files_are_not_ours(space: Space | None) -> None:
    assert (await StoreFiles(space).rewrite(["a"])).searched == ()
    assert (await StoreFiles(Space()).rewrite([])).searched == ()


async def test_a_failure_is_reported_and_retried_with_the_next_erasure() -> None:
    """Discriminates: forgetting collections whose rewriting failed."""
    space, files = Space(), None
    space.full = True
    files = StoreFiles(space)
    reply = await files.rewrite(["a"])
    assert reply.failed
    assert [(each.place, each.hits) for each in reply.left] == [(PLACE, 0)]
    assert "the disk is full" in reply.left[0].what_to_do
    space.full = False
    assert (await files.rewrite(["b"])).left == ()
    assert space.rewritten == [["a", "b"]]


async def test_several_erasures_are_followed_by_one_rewrite() -> None:
    """Discriminates: a rewrite after each erasure."""
    space = Space()
    files = StoreFiles(space, quiet_s=0.1)
    for name in ("a", "b", "a"):
        [left] = files.rewrite_later([name]).left
        assert (left.place, left.hits, "within a minute" in left.what_to_do) == (PLACE, 0, True)
        await asyncio.sleep(0.03)  # less than the delay, each time
        assert space.rewritten == []
    await until(lambda: space.rewritten)
    assert space.rewritten == [["a", "b"]]
    await files.close()
    assert space.rewritten == [["a", "b"]]


async def test_a_pending_rewrite_is_done_at_once_when_the_server_stops() -> None:
    """Discriminates: a close that cancels it, or waits until the server is idle."""
    space = Space()
    files = StoreFiles(space, quiet_s=60)
    files.rewrite_later(["a"])
    await asyncio.wait_for(files.close(), 1)
    assert space.rewritten == [["a"]]


async def test_a_failure_in_the_background_is_not_retried_endlessly() -> None:
    space = Space()
    space.full = True
    files = StoreFiles(space, quiet_s=0)
    files.rewrite_later(["a"])
    await asyncio.wait_for(files.close(), 1)
    assert space.rewritten == []


async def test_what_an_earlier_run_left_is_rewritten() -> None:
    space = Space()
    files = StoreFiles(space, quiet_s=0)
    await files.resume()
    await asyncio.wait_for(files.close(), 1)
    assert space.rewritten == [["left"]]


def test_only_affected_collections_are_rewritten() -> None:
    names = StoreSettings()
    assert touched(Counter(memories=1, log_lines=3, turns=0), names) == {names.memory_collection}
    assert touched(Counter(), names) == frozenset()
    assert touched(Counter(turns=2), names) == {names.conversation_collection, names.session_collection}
