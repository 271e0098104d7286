"""A document is erased: what remains of it in turns that only name it, or only repeat its text."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any, cast

from qdrant_client import models

from core.operations.erasure import ERASED_ID, ErasureOptions, Thoroughness
from services.operations.erasure.erase import Erasure
from services.store.dialect import VectorStore
from tests.services.operations.erasure.test_turns import ReadingStore
from tests.support.servers.app import App

DOCUMENT, OTHER, CHUNK, SESSION = (str(uuid.UUID(int=number)) for number in range(1, 5))
WORDS = "Rumpelstilzchen pays nine golden ducats for the spinning wheel."


async def plant(app: App, turn_id: str = "", **more: Any) -> str:
    """A turn, written bypassing the code that stores turns."""
    turn_id = turn_id or str(uuid.uuid4())
    payload = {"session_id": SESSION, "owner": "local", "user_query": "?", "assistant_response": "!", **more}
    point = models.PointStruct(id=turn_id, vector={}, payload=payload)
    await app.container.store.upsert("conversations", [point])
    return turn_id


async def test_a_question_limited_to_the_document_loses_its_name_and_thinking_that_quotes_it_is_reported(
    app: App,
) -> None:
    """Discriminates: searching turns only by their citations; quotes only in answers."""
    limited = await plant(app, filters={"document_ids": [DOCUMENT, OTHER]})
    source = {"document_id": DOCUMENT, "chunk_id": CHUNK, "text": WORDS}
    quoting = await plant(app, sources=[source], thinking=f"They say so: {WORDS}")
    erased = await app.container.sessions.erasure._erasure.document(DOCUMENT, ErasureOptions())
    assert erased.quoted_in.turn_ids == (quoting,)
    assert erased.proof is not None
    assert erased.proof.hits == 0
    [record] = await app.container.store.retrieve("conversations", [limited])
    assert (record.payload or {})["filters"] == {"document_ids": [ERASED_ID, OTHER]}


async def test_the_receipt_counts_only_changed_turns(app: App) -> None:
    """Discriminates: counting every turn read, which is all of them in a full erasure."""
    source = {"document_id": DOCUMENT, "chunk_id": CHUNK, "text": WORDS}
    await plant(app, sources=[source])
    for _ in range(3):
        await plant(app)
    erasure = app.container.sessions.erasure._erasure
    await erasure.document(DOCUMENT, ErasureOptions(Thoroughness.FULL))
    [receipt] = (await app.client.get("/admin/receipts", params={"kind": "erasure"})).json()["receipts"]
    assert receipt["counts"]["turns_scrubbed"] == 1


async def test_two_documents_erased_at_once_both_leave_the_turns_that_cite_them(app: App) -> None:
    """Discriminates: writing a turn's citations as they were before the other erasure emptied its own."""
    documents = [await app.add_text(f"{name}.md", f"# {name}\n\n{WORDS}") for name in ("tale", "saga")]
    sources = [{"document_id": each, "chunk_id": str(uuid.uuid4()), "text": WORDS} for each in documents]
    turn_ids = [await plant(app, sources=sources) for _ in range(120)]
    erasure = app.container.sessions.erasure._erasure
    await asyncio.gather(*[erasure.document(each, ErasureOptions()) for each in documents])
    records = await app.container.store.retrieve("conversations", turn_ids)
    left = [one["text"] for record in records for one in (record.payload or {})["sources"]]
    assert set(left) == {""}


async def test_a_turn_that_passed_over_a_chunk_of_a_deleted_version_loses_its_id(app: App) -> None:
    """Its id is known only from another turn, read later. Discriminates: one reading of the turns."""
    part = {"part": "knowledge", "role": "user", "tokens": 1, "kept": False, "chunk_id": CHUNK}
    first, last = (str(uuid.UUID(int=number)) for number in (1 << 64, 2 << 64))
    await plant(app, first, prompt={"parts": [part]})
    await plant(app, last, sources=[{"document_id": DOCUMENT, "chunk_id": CHUNK, "text": WORDS}])
    erased = await app.container.sessions.erasure._erasure.document(DOCUMENT, ErasureOptions())
    assert (erased.counts["turns_scrubbed"], erased.proof and erased.proof.hits) == (2, 0)
    [record] = await app.container.store.retrieve("conversations", [first])
    assert (record.payload or {})["prompt"]["parts"][0]["chunk_id"] is None


async def test_all_turns_are_read_once_for_an_erasure_and_once_for_its_proof(app: App) -> None:
    """Discriminates: reading them for the cited chunks, and again for the turns that name them."""
    document_id = await app.add_text("tale.md", f"# Tale\n\n{WORDS}")
    for _ in range(40):
        await plant(app, sources=[{"document_id": document_id, "chunk_id": OTHER, "text": "."}])
    await plant(app)
    parts = app.container.sessions.erasure._erasure._parts
    read = []
    for _ in range(2):  # the chunk that is cited is unknown at first: then those that passed it over are read
        store = ReadingStore(parts.store)
        await Erasure(replace(parts, store=cast(VectorStore, store))).document(document_id, ErasureOptions())
        read.append(store.records["conversations"])
    assert read == [3 * 41, 2 * 41]
