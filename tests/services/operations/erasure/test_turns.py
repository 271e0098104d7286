"""An owner is erased, including what is stored about them outside their turns and sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

from core.operations.erasure import ErasedKind, ErasureOptions
from services.conversation.sessions import choices_id
from services.operations.erasure.erase import Erasure
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
    """The real store, counting the records that its scrolls return, by collection."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.records: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, collection: str, *fields: Any, **named: Any) -> Any:
        records, following = await self._store.scroll(collection, *fields, **named)
        self.records[collection] += len(records)
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
