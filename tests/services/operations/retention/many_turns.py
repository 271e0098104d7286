"""10,000 turns with branches, holds, limits, summaries, memories and a log, and the services over them."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from qdrant_client import models

from api.container import History
from api.wiring.assembly import make_history
from config.settings import Settings
from core.conversation.sessions import Session, SessionTree
from core.conversation.turns import ManifestPart, PromptManifest, Summary, Turn, TurnStatus
from core.memory.record import Memory
from core.operations.expiry import DAY_US
from services.adapters.edge.client import open_edge_client
from services.conversation.recall import read_words
from services.conversation.turns import TurnVectors
from services.llm_service import LLMService
from services.memory.records import MemoryRecords
from services.models.embedding import EmbeddingService
from services.store.collections import collection_specs, ensure_collections
from services.store.dialect import VectorStore
from tests.services.conversation.stores import uid
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding
from tests.support.servers.app import make_settings

SESSIONS, EACH, OLD = 100, 100, 50
HELD = range(0, 4)
LONGER = range(4, 7)  # 90 days
SHORTER = range(7, 14)  # 7 days, so all their turns are old
OWNER = "local"

EMBEDDING = HashingEmbedding()


def mark(number: int) -> str:
    """A word in the texts of this turn and in everything derived from it."""
    return f"zq{number:05}"


@dataclass
class Conversations:
    """The stored data. Turn n is turn n % EACH of session n // EACH; the first OLD of a session are old."""

    now_us: int = field(default_factory=lambda: time.time_ns() // 1_000)
    choice: random.Random = field(default_factory=lambda: random.Random(10_000))

    @cached_property
    def expired(self) -> set[int]:
        remaining = {*HELD, *LONGER}
        return {
            number
            for number in range(SESSIONS * EACH)
            if number // EACH in SHORTER or (number % EACH < OLD and number // EACH not in remaining)
        }

    @cached_property
    def remaining(self) -> set[int]:
        return set(range(SESSIONS * EACH)) - self.expired

    @cached_property
    def parents(self) -> dict[int, int | None]:
        """A third of the turns follow some earlier turn, the others the last one."""
        results: dict[int, int | None] = {}
        for number in range(SESSIONS * EACH):
            place = number % EACH
            earlier = (
                number - 1 if self.choice.random() > 1 / 3 else number - self.choice.randint(1, place or 1)
            )
            results[number] = earlier if place else None
        return results

    def created_us(self, number: int) -> int:
        session, place = divmod(number, EACH)
        age_days = 40 if place < OLD else 10
        return self.now_us - age_days * DAY_US + (place * SESSIONS + session) * 1_000_000

    def summary(self, number: int) -> Summary | None:
        """At 20 of old turns, at 60 continued from there, at 70 of newer turns only."""
        first = number - number % EACH
        spans = {20: (0, 21, None), 60: (21, 61, 20), 70: (55, 71, None)}
        if number % EACH not in spans:
            return None
        begin, end, before = spans[number % EACH]
        covers = tuple(uid(first + place) for place in range(begin, end))
        start, previous = uid(first + (0 if before else begin)), uid(first + before) if before else None
        return Summary(f"Of {mark(first + begin)}", start, covers, previous, "default", self.now_us, 5)

    def turn(self, number: int) -> Turn:
        sent = ManifestPart("question", "user", 3, text=f"sent {mark(number)}")
        parent = self.parents[number]
        return Turn(
            turn_id=uid(number),
            session_id=uid(10**6 + number // EACH),
            owner=OWNER,
            question=f"What is the fee of {mark(number)}, topic {number % 97}?",
            created_us=self.created_us(number),
            status=TurnStatus.COMPLETED,
            parent_turn_id=None if parent is None else uid(parent),
            answer=f"The fee of {mark(number)} is {number} yuan.",
            seq=number % EACH,
            prompt=PromptManifest("default", "one_system", (sent,)),
            summary=self.summary(number),
        )

    def session(self, number: int) -> Session:
        """Every second one has its first question as its title."""
        title = f"Fee of {mark(number * EACH)}" if number % 2 else "Mine"
        days = 90 if number in LONGER else 7 if number in SHORTER else None
        began_us, session_id = self.created_us(number * EACH), uid(10**6 + number)
        return Session(session_id, OWNER, title, began_us, self.now_us, number in HELD, None, days)

    def memories(self, session: int) -> list[Memory]:
        """Of an old turn, of a newer one, of both."""
        old, new = session * EACH + 3, session * EACH + 77
        sources = [(old,), (new,), (old, new)]
        return [
            Memory(
                memory_id=uid(2 * 10**6 + session * 3 + kind),
                owner=OWNER,
                session_id=uid(10**6 + session),
                content=f"Pays for {mark(turns[-1])}",
                turn_ids=tuple(map(uid, turns)),
                created_us=self.now_us,
            )
            for kind, turns in enumerate(sources)
        ]


@dataclass
class World:
    settings: Settings
    store: VectorStore
    history: History
    memories: MemoryRecords
    conversations: Conversations

    async def tree(self, session: int) -> SessionTree:
        """Through the cached trees, as a reader gets it."""
        return await self.history.conversations.turns.tree(uid(10**6 + session), OWNER)

    async def write(self) -> None:
        for start in range(0, SESSIONS * EACH, 250):
            turns = [self.conversations.turn(number) for number in range(start, start + 250)]
            await self.history.conversations.turns.put_many([(turn, await vectors(turn)) for turn in turns])
            if self.history.qa_log is not None:
                for turn in turns:
                    self.history.qa_log.write(turn)
        for number in range(SESSIONS):
            named_by = uid(number * EACH) if number % 2 else None
            await self.history.sessions.put(self.conversations.session(number), named_by)
            for memory in self.conversations.memories(number):
                await self.memories.put(memory, vector(memory.content))

    async def everything(self) -> dict[str, dict[str, models.Record]]:
        """Every point of every collection, with payload and vectors."""
        results: dict[str, dict[str, models.Record]] = {}
        for spec in collection_specs(self.settings.store):
            offset: Any = None
            records: list[models.Record] = []
            while True:
                page, offset = await self.store.scroll(spec.name, None, 1_000, None, offset, True, True)
                records += page
                if offset is None:
                    break
            results[spec.name] = {str(record.id): record for record in records}
        return results


def vector(text: str) -> list[float]:
    return EMBEDDING.get_text_embedding(text)


async def vectors(turn: Turn) -> TurnVectors:
    return TurnVectors(vector(turn.question), vector(turn.text), await read_words(turn))


@asynccontextmanager
async def open_world(folder: Path) -> AsyncIterator[World]:
    """The services as the server assembles them, over the embedded store."""
    conversation = {
        "qa_log": folder / "qa",
        "prompt_keep_days": 365,
        "memory_outlives_turns": False,
    }  # prompts go with their turns only
    settings = make_settings(folder, conversation=conversation)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_edge_client(folder / "store"))
        embedding = EmbeddingService(EMBEDDING, "hashing", DIMENSION)
        stack.push_async_callback(embedding.close)
        await ensure_collections(store, settings.store, embedding_name="hashing", dimension=DIMENSION)
        history = make_history(settings, store, embedding, LLMService({}))
        stack.push_async_callback(history.close)
        memories = MemoryRecords(store, settings.store.memory_collection)
        yield World(settings, store, history, memories, Conversations())
