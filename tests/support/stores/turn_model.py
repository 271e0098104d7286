"""A model of the turn store as a plain dict (P8), and the real services it is compared with."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from hypothesis import strategies as st
from qdrant_client import AsyncQdrantClient, models

from config.settings import ConversationSettings, StoreSettings
from core.conversation.sessions import CLEAR, walk_branch
from core.conversation.turns import Turn, TurnStatus
from core.errors import StoreUnavailableError
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.conversation.turns import TurnStore, TurnVectors
from services.conversation_manager import ConversationManager
from services.models.embedding import EmbeddingService
from services.retrieval.query_forms import QueryBuilder
from services.store.clock import Clock
from services.store.collections import collection_specs
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding

Order = tuple[int, int, str]
TURNS = StoreSettings().conversation_collection
CACHE_S = 300
MISSING = "00000000-0000-0000-0000-000000000000"

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["什么是问脉\uff1f", "a\n\n\u2028b\0c", "字" * 3_000, "👩‍🚀", "null", " "]),
)


@dataclass(frozen=True)
class TurnRecord:
    """A turn as a caller knows it. `parent` may name a turn that no longer exists, or itself."""

    turn_id: str
    session_id: str
    owner: str
    question: str
    answer: str
    status: TurnStatus
    parent: str | None
    created_us: int
    seq: int
    command: str = ""

    @classmethod
    def of(cls, turn: Turn) -> TurnRecord:
        return cls(
            turn.turn_id,
            turn.session_id,
            turn.owner,
            turn.question,
            turn.answer,
            turn.status,
            turn.parent_turn_id,
            turn.created_us,
            turn.seq,
            turn.command,
        )

    def as_turn(self) -> Turn:
        return Turn(
            turn_id=self.turn_id,
            session_id=self.session_id,
            owner=self.owner,
            question=self.question,
            created_us=self.created_us,
            status=self.status,
            parent_turn_id=self.parent,
            answer=self.answer,
            seq=self.seq,
            command=self.command,
        )

    @property
    def order(self) -> Order:
        return (self.created_us, self.seq, self.turn_id)


def chained(records: Sequence[TurnRecord], times_us: Sequence[int]) -> list[TurnRecord]:
    """Return completed records at these times, each the parent of the next."""
    parents = [None, *(record.turn_id for record in records)]
    return [
        replace(record, parent=parent, created_us=time_us, status=TurnStatus.COMPLETED, seq=number)
        for number, (record, parent, time_us) in enumerate(zip(records, parents, times_us, strict=False))
    ]


@dataclass
class TurnModel:
    """Every acknowledged turn that has not been erased and has not expired."""

    records: dict[str, TurnRecord] = field(default_factory=dict)

    def write(self, record: TurnRecord) -> None:
        self.records[record.turn_id] = record

    def change(self, turn_id: str, **fields: object) -> TurnRecord:
        self.records[turn_id] = changed = replace(self.records[turn_id], **fields)  # type: ignore[arg-type]
        return changed

    def erase(self, turn_id: str) -> None:
        del self.records[turn_id]

    def expire(self, cutoff_us: int) -> int:
        """Remove turns that are older than the cutoff and not running; returns their number."""
        old = [
            record.turn_id
            for record in self.records.values()
            if record.created_us < cutoff_us and record.status is not TurnStatus.RUNNING
        ]
        for turn_id in old:
            self.erase(turn_id)
        return len(old)

    def interrupt_running(self) -> int:
        """Mark running turns as interrupted; returns their number."""
        running = [turn_id for turn_id, record in self.records.items() if record.status is TurnStatus.RUNNING]
        for turn_id in running:
            self.change(turn_id, status=TurnStatus.INTERRUPTED)
        return len(running)

    def session(self, session_id: str, owner: str) -> list[TurnRecord]:
        """The session's turns in time order."""
        own = [s for s in self.records.values() if (s.session_id, s.owner) == (session_id, owner)]
        return sorted(own, key=lambda record: record.order)

    def latest_completed(self, session_id: str, owner: str) -> str | None:
        """The parent of the next turn: the last completed one, ignoring commands, but none after /clear."""
        done = [s for s in self.session(session_id, owner) if s.status is TurnStatus.COMPLETED]
        done = [s for s in done if s.command in ("", CLEAR)]
        return done[-1].turn_id if done and not done[-1].command else None

    def branch(self, leaf: str | None) -> list[str]:
        """The branch from the root down; it stops at a parent that is missing, in another session, or already
        on it."""
        path: list[str] = []
        while leaf in self.records and leaf not in path:
            record = self.records[leaf]
            if path and self.records[path[-1]].session_id != record.session_id:
                break
            path.append(leaf)
            leaf = record.parent
        return path[::-1]

    def recent(self, leaf: str | None, limit: int) -> list[str]:
        silent = (TurnStatus.RUNNING,)
        records = [s for s in map(self.records.__getitem__, self.branch(leaf)) if not s.command]
        spoken = [s for s in records if s.answer or s.status is not TurnStatus.FAILED]
        return [record.turn_id for record in spoken if record.status not in silent][-limit:]


@dataclass(frozen=True)
class Services:
    """The services on an open store; `close` closes the store, too."""

    store: VectorStore
    manager: ConversationManager
    queries: QueryBuilder
    stack: AsyncExitStack

    async def close(self) -> None:
        await self.stack.aclose()

    async def kill(self) -> None:
        """Kill the embedded store's process with SIGKILL; returns once a new one answers."""
        os.kill(cast(EdgeClient, self.store).process_id, signal.SIGKILL)
        while True:
            try:
                await self.manager.turns.count()
            except StoreUnavailableError:
                await asyncio.sleep(0.005)  # between two polls
            else:
                return

    async def import_turns(self, records: Sequence[TurnRecord]) -> None:
        turns = [record.as_turn() for record in records]
        await self.manager.turns.put_many([(turn, TurnVectors()) for turn in turns])
        self.manager.index_later(turns)

    async def killed_between_writes(self, records: Sequence[TurnRecord], acknowledged: int) -> None:
        """Kill the store during concurrent writes: acknowledged ones are stored, all others completely or not
        at all."""
        turns = self.manager.turns
        writes = [asyncio.create_task(turns.put(record.as_turn(), TurnVectors())) for record in records]
        await writes[acknowledged]
        await self.kill()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {type(None), StoreUnavailableError}
        for record, outcome in zip(records, outcomes, strict=True):
            stored = await turns.get(record.turn_id)
            assert stored is not None or outcome is not None
            assert stored is None or TurnRecord.of(stored) == record
        await turns.delete([record.turn_id for record in records])

    async def recalled(self, leaf: TurnRecord, question: str) -> tuple[set[TurnRecord], set[TurnRecord]]:
        """Return the turns recalled for a question below `leaf`, and the recent ones there."""
        branch = await self.manager.find_branch(leaf.session_id, leaf.owner, leaf.turn_id)
        recent = await self.manager.get_recent_history(branch)
        query = await self.queries.build(question, [])
        hits = await self.manager.retrieve_relevant_history(query, branch, recent, leaf.owner)
        return {TurnRecord.of(turn) for turn in hits}, {TurnRecord.of(turn) for turn in recent}

    async def compare(self, model: TurnModel, places: Sequence[tuple[str, str]], recent_turns: int) -> None:
        """Assert that everything readable, with and without the cached trees, matches the model."""
        fresh = TurnStore(self.store, TURNS)
        assert await fresh.count() == len(model.records)
        read = {turn.turn_id: TurnRecord.of(turn) for turn in await fresh.get_many([*model.records, MISSING])}
        assert read == model.records
        for session_id, owner in places:
            nodes = (await fresh.tree(session_id, owner)).nodes
            expected = model.session(session_id, owner)
            assert sorted(node.order for node in nodes.values()) == [record.order for record in expected]
            for leaf in nodes:
                walked = [node.turn_id for node in walk_branch(nodes, leaf)]
                grown = await self.manager.find_branch(session_id, owner, leaf)
                assert walked == [node.turn_id for node in grown.nodes] == model.branch(leaf)
                recent = [turn.turn_id for turn in await self.manager.get_recent_history(grown)]
                assert recent == model.recent(leaf, recent_turns)
            branch = await self.manager.find_branch(session_id, owner)
            assert branch.parent_turn_id == model.latest_completed(session_id, owner)
        assert (await fresh.tree(places[0][0], "a stranger")).nodes == {}


async def open_services(folder: Path | None, limits: ConversationSettings, clock: Clock) -> Services:
    """Open the services on the embedded store in `folder`, or on the in-memory reference engine."""
    stack = AsyncExitStack()
    if folder:
        store = cast(VectorStore, await stack.enter_async_context(open_edge_client(folder)))
    else:
        store = cast(VectorStore, AsyncQdrantClient(":memory:"))
        stack.push_async_callback(store.close)
    if not await store.collection_exists(TURNS):
        await _create(store)
    embedding = EmbeddingService(HashingEmbedding(), "hashing", DIMENSION)
    stack.push_async_callback(embedding.close)
    manager = ConversationManager(TurnStore(store, TURNS, CACHE_S), embedding, limits, clock=clock)
    stack.push_async_callback(manager.close)
    return Services(store, manager, QueryBuilder(embedding), stack)


async def _create(store: VectorStore) -> None:
    """Create the turns' collection as the product does, without the others."""
    spec = next(each for each in collection_specs(StoreSettings()) if each.name == TURNS)
    vector = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    sparse = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    await store.create_collection(TURNS, dict.fromkeys(spec.dense, vector), sparse)
    for name, schema in spec.indexes.items():
        await store.create_payload_index(TURNS, name, schema)


async def embedded_in_background() -> None:
    """Wait until the texts of the last turns have been embedded."""
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("index ")]
    if tasks:
        await asyncio.wait(tasks)
