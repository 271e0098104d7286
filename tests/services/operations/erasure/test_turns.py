"""An owner is erased, including what is stored about them outside their turns and sessions."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from core.conversation.turns import Turn, TurnStatus
from core.operations.erasure import ErasedKind, ErasureOptions, Thoroughness
from services.conversation.sessions import choices_id
from services.conversation.turns import TurnVectors
from services.operations.erasure.erase import Erasure
from services.operations.erasure.proof import Prover
from services.operations.erasure.turns import MAX_RECORDS, TurnEraser
from services.store.dialect import VectorStore
from tests.support.servers.app import App

OWNER = "local"


async def test_an_owners_last_choices_are_erased_with_the_owner(app: App) -> None:
    """Discriminates: leaving the record of the choices, which no turn or session names."""
    session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
    await app.client.patch(f"/sessions/{session_id}", json={"temperature": 0.5})
    store, noted = app.container.store, [choices_id(OWNER)]
    assert len(await store.retrieve("operations", noted)) == 1
    await app.container.sessions.erasure._erasure.anything(ErasedKind.OWNER, OWNER, ErasureOptions())
    assert await store.retrieve("operations", noted) == []


class ReadingStore:
    """The real store, counting by collection the records, and those with texts, that its scrolls return."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.records: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, collection: str, *fields: Any, **named: Any) -> Any:
        records, following = await self._store.scroll(collection, *fields, **named)
        self.records[collection] += len(records)
        self.texts[collection] += sum(bool(record.payload) for record in records)
        return records, following


async def test_an_owners_turns_and_sessions_are_not_read_again_for_every_document(app: App) -> None:
    """Discriminates: removing each document's traces from turns that are about to be deleted."""
    read = [await _erasing(app, documents) for documents in (1, 6)]
    assert read[0] == read[1]


async def _erasing(app: App, documents: int) -> tuple[int, int]:
    """Return how many turns and sessions are read when an owner with so many documents is erased."""
    for number in range(documents):
        await app.add_text(f"tea-{number}.md", f"# Tea {number}\n\nSteep it for {number} minutes.")
    for _ in range(4):
        await app.ask("How long is tea steeped?")
    parts = app.container.sessions.erasure._erasure._parts
    store = ReadingStore(parts.store)
    erasure = Erasure(replace(parts, store=cast(VectorStore, store)))
    erased = await erasure.owner(OWNER, ErasureOptions())
    assert (erased.counts["documents"], erased.counts["turns"]) == (documents, 4)
    assert erased.proof is not None
    assert erased.proof.hits == 0
    return store.records["conversations"], store.records["sessions"]


class CountedIds(tuple[str, ...]):
    """Ids that count how often all of them are read."""

    rounds = 0

    def __iter__(self) -> Iterator[str]:
        self.rounds += 1
        return super().__iter__()


async def test_a_sessions_ids_are_not_all_read_again_for_each_of_its_turns(app: App) -> None:
    """Discriminates: a set of all ids built for each follow-up, or for each record that is searched: at
    20,000 turns the server answered nobody for half a minute."""
    rounds = [await _rounds(app, turns) for turns in (3, 30)]
    assert rounds[0] == rounds[1]


async def _rounds(app: App, turns: int) -> tuple[int, int]:
    """Return how often all ids are read to search for a session with so many turns, and to erase it."""
    parts, session_id = app.container.sessions.erasure._erasure._parts, await _session(app, turns)
    eraser = TurnEraser(parts)
    traced = await eraser.trace_session(session_id, OWNER)
    searched, erased = CountedIds(traced.turn_ids), CountedIds(traced.turn_ids)
    await Prover(parts).prove(replace(traced, turn_ids=searched), ErasureOptions(Thoroughness.FULL))
    _, counts = await eraser.erase_session(replace(traced, turn_ids=erased), OWNER)
    assert counts["turns"] == turns
    return searched.rounds, erased.rounds


async def _session(app: App, turns: int) -> str:
    """Store a session whose turns follow one another."""
    session_id, ids = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in range(turns)]
    stored = [
        Turn(each, session_id, OWNER, f"question {at}", at + 1, TurnStatus.COMPLETED, parent_turn_id=parent)
        for at, (each, parent) in enumerate(zip(ids, [None, *ids], strict=False))
    ]
    await app.container.conversations.turns.put_many([(turn, TurnVectors()) for turn in stored])
    return session_id


async def test_a_session_is_traced_with_the_texts_of_its_last_turns_only(app: App) -> None:
    """Discriminates: reading all texts of a long session, hundreds of megabytes, for those of the last."""
    session_id = await _session(app, MAX_RECORDS + 10)
    parts = app.container.sessions.erasure._erasure._parts
    store = ReadingStore(parts.store)
    traced = await TurnEraser(replace(parts, store=cast(VectorStore, store))).trace_session(session_id, OWNER)
    assert (len(traced.turn_ids), store.texts["conversations"]) == (MAX_RECORDS + 10, 0)
