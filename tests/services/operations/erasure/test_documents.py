"""A document is erased: what remains of it in turns that only name it, or only repeat its text."""

from __future__ import annotations

import uuid
from typing import Any

from qdrant_client import models

from core.operations.erasure import ERASED_ID, ErasureOptions, Thoroughness
from tests.support.servers.app import App

DOCUMENT, OTHER, CHUNK, SESSION = (str(uuid.UUID(int=number)) for number in range(1, 5))
WORDS = "Rumpelstilzchen pays nine golden ducats for the spinning wheel."


async def plant(app: App, **more: Any) -> str:
    """A turn, written bypassing the code that stores turns."""
    turn_id = str(uuid.uuid4())
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
