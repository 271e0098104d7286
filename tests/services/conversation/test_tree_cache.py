"""The trees cached between turns must never differ from the stored ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from qdrant_client import models

from core.conversation.sessions import SessionTree, TurnNode
from core.conversation.turns import Summary, Turn, TurnStatus
from core.errors import StoreUnavailableError
from services.conversation.turns import SessionCache, TurnStore, TurnVectors
from services.store.dialect import UnknownPointError, VectorStore
from services.store.points import in_session
from tests.services.conversation.stores import TURNS, open_edge, uid

SESSION, OTHER = uid(1), uid(2)
SUMMARY = Summary("short", uid(10), (uid(10),), None, "m", 1, 1)


class WatchedStore:
    """The real store; counts scrolls, can delay one and let a write fail after it was made."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.scrolls = 0
        self.gate: asyncio.Event | None = None
        self.read = asyncio.Event()
        self.breaks = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, *fields: Any, **named: Any) -> Any:
        self.scrolls += 1
        page = await self._store.scroll(*fields, **named)
        if self.gate is not None:
            self.read.set()
            await self.gate.wait()
        return page

    async def upsert(self, *fields: Any, **named: Any) -> Any:
        done = await self._store.upsert(*fields, **named)
        if self.breaks:
            raise StoreUnavailableError("cut off")
        return done


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WatchedStore]:
    async with open_edge(tmp_path) as opened:
        yield WatchedStore(opened)


def turn(number: int, parent: int | None = None, session: str = SESSION, **more: Any) -> Turn:
    fields = {"status": TurnStatus.COMPLETED, **more}
    parent_id = None if parent is None else uid(parent)
    return Turn(uid(number), session, "local", f"q{number}", number, parent_turn_id=parent_id, **fields)


def cached(store: WatchedStore, cache_s: float = 300) -> TurnStore:
    return TurnStore(cast(VectorStore, store), TURNS, cache_s)


async def put(turns: TurnStore, *fields: Turn) -> None:
    for each in fields:
        await turns.put(each, TurnVectors())


async def test_a_session_is_read_once_and_reflects_every_write(store: WatchedStore) -> None:
    """Discriminates: not updating the cache for any one of the writes."""
    turns = cached(store)
    await put(turns, turn(10), turn(11, 10))
    await turns.tree(SESSION, "local")
    before = store.scrolls
    await put(turns, turn(12, 11, status=TurnStatus.RUNNING))
    await put(turns, turn(12, 11))
    await turns.put_many([(turn(13, 12), TurnVectors()), (turn(90, session=OTHER), TurnVectors())])
    branch = (await turns.tree(SESSION, "local")).branch(uid(13))
    assert store.scrolls == before
    stored = (await cached(store, 0).tree(SESSION, "local")).nodes
    assert list(branch.nodes) == [stored[uid(number)] for number in (10, 11, 12, 13)]


async def test_two_who_want_a_session_at_once_share_one_reading(store: WatchedStore) -> None:
    """The page asks for a session's turns and its tree. Discriminates: reading it twice at the same time."""
    turns = cached(store)
    await put(turns, turn(10), turn(11, 10))
    one, other = await asyncio.gather(*[turns.tree(SESSION, "local") for _ in range(2)])
    assert (store.scrolls, len(one), other is one) == (1, 2, True)


async def test_a_session_with_a_new_id_is_not_read_at_all(store: WatchedStore) -> None:
    """Discriminates: searching for turns that cannot exist; a tree that misses its first write."""
    turns = cached(store)
    turns.expect_new(SESSION, "local")
    assert not (await turns.tree(SESSION, "local")).nodes
    await put(turns, turn(10))
    assert (await turns.tree(SESSION, "local")).default_parent(0) == uid(10)
    assert store.scrolls == 0


@pytest.mark.parametrize("write", ["set_payload", "delete", "delete_matching", "past the store"])
async def test_a_tree_is_read_again_after_a_change_elsewhere(store: WatchedStore, write: str) -> None:
    turns = cached(store)
    await put(turns, turn(10, status=TurnStatus.RUNNING), turn(11, 10))
    await turns.tree(SESSION, "local")
    if write == "set_payload":
        await turns.set_payload({"status": "interrupted"}, [uid(10)])
    elif write == "delete":
        await turns.delete([uid(11)])
    elif write == "delete_matching":
        await turns.delete_matching(models.Filter(must=[*in_session(SESSION, "local")]))
    else:
        await store.set_payload(TURNS, {"seq": 7}, points=[uid(11)])
        turns.forget_trees()
    assert (await turns.tree(SESSION, "local")).nodes == (await cached(store, 0).tree(SESSION, "local")).nodes


async def test_a_summary_changes_the_cached_tree(store: WatchedStore) -> None:
    """A session of thousands of turns is not read again for it. Discriminates: dropping the tree."""
    turns = cached(store)
    await put(turns, turn(10), turn(11, 10), turn(12, 11))
    (await turns.tree(SESSION, "local")).branch(uid(12))  # walked and continued
    before = store.scrolls
    for summary, expected in ((SUMMARY, [uid(11)]), (None, [])):
        await turns.set_summary(summary, [uid(11)])
        branch = (await turns.tree(SESSION, "local")).branch(uid(12))
        assert [node.turn_id for node in branch.nodes if node.has_summary] == expected
        assert branch.nodes == tuple((await cached(store, 0).tree(SESSION, "local")).branch(uid(12)).nodes)
    assert store.scrolls == before + 2  # both by the instance without a cache


async def test_after_a_summary_that_failed_the_session_is_read_again(store: WatchedStore) -> None:
    turns = cached(store)
    await put(turns, turn(10))
    await turns.tree(SESSION, "local")
    before = store.scrolls
    with pytest.raises(UnknownPointError):
        await turns.set_summary(SUMMARY, [uid(10), uid(99)])
    assert (await turns.tree(SESSION, "local")).nodes[uid(10)].has_summary
    assert store.scrolls == before + 1


async def test_fields_outside_the_tree_can_change_without_reading_again(store: WatchedStore) -> None:
    turns = cached(store)
    await put(turns, turn(10))
    await turns.tree(SESSION, "local")
    before = store.scrolls
    await turns.set_payload({"prompt": None}, [uid(10)])
    await turns.add_vectors({uid(10): TurnVectors(turn=[1.0, 0.0, 0.0, 0.0])})
    await turns.tree(SESSION, "local")
    assert store.scrolls == before


@pytest.mark.parametrize("write", ["put", "set_payload", "set_summary", "delete"])
async def test_a_read_overtaken_by_a_write_is_not_cached(store: WatchedStore, write: str) -> None:
    """Discriminates: caching a result without checking whether it is stale."""
    turns = cached(store)
    await put(turns, turn(10))
    turns.forget_trees()
    store.gate = asyncio.Event()
    reading = asyncio.create_task(turns.tree(SESSION, "local"))
    await store.read.wait()  # the page is read, and delayed
    if write == "put":
        await put(turns, turn(11, 10))
    elif write == "set_payload":
        await turns.set_payload({"status": "interrupted"}, [uid(10)])
    elif write == "set_summary":
        await turns.set_summary(SUMMARY, [uid(10)])
    else:
        await turns.delete([uid(10)])
    store.gate.set()
    await reading
    assert (await turns.tree(SESSION, "local")).nodes == (await cached(store, 0).tree(SESSION, "local")).nodes


async def test_after_a_write_that_failed_the_session_is_read_again(store: WatchedStore) -> None:
    """It may still have been stored. Discriminates: dropping the tree only on success."""
    turns = cached(store)
    await put(turns, turn(10))
    await turns.tree(SESSION, "local")
    store.breaks = True
    with pytest.raises(StoreUnavailableError):
        await put(turns, turn(11, 10))
    assert set((await turns.tree(SESSION, "local")).nodes) == {uid(10), uid(11)}


async def test_without_a_cache_time_nothing_is_cached(store: WatchedStore) -> None:
    turns = cached(store, 0)
    await put(turns, turn(10))
    await turns.tree(SESSION, "local")
    before = store.scrolls
    await turns.tree(SESSION, "local")
    assert store.scrolls == before + 1


def tree(session: str, size: int) -> SessionTree:
    return SessionTree(session, [TurnNode(str(at), None, at, at, TurnStatus.COMPLETED) for at in range(size)])


def keep(cache: SessionCache, session: str, size: int) -> None:
    with cache.reading(session, "local") as reading:
        cache.keep(reading, tree(session, size))


async def test_the_cache_is_bounded_and_entries_expire() -> None:
    cache = SessionCache(0.05, max_nodes=100)
    keep(cache, "a", 40)
    keep(cache, "b", 30)
    assert cache.get("a", "local") is None  # the oldest is evicted if there is no room
    assert cache.get("b", "local") is not None
    assert cache.get("b", "another") is None
    keep(cache, "huge", 101)
    assert cache.get("huge", "local") is None
    await asyncio.sleep(0.06)  # longer than an entry lives
    assert cache.get("b", "local") is None


def test_a_tree_that_outgrows_the_cache_is_dropped() -> None:
    cache = SessionCache(60, max_nodes=22)
    keep(cache, SESSION, 2)
    with cache.writing([turn(5)]):
        pass
    assert cache.get(SESSION, "local") is None


def test_a_turn_that_is_written_again_replaces_itself() -> None:
    cache = SessionCache(60)
    with cache.reading(SESSION, "local") as reading:
        cache.keep(reading, SessionTree(SESSION))
    for status in (TurnStatus.RUNNING, TurnStatus.COMPLETED):
        with cache.writing([replace(turn(5), status=status)]):
            pass
    known = cache.get(SESSION, "local")
    assert known is not None
    assert [node.status for node in known.nodes.values()] == [TurnStatus.COMPLETED]
