"""A rewritten question contains words of earlier turns, so it is erased with them; read without the proof's
code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from qdrant_client import models

from tests.e2e.admin.test_erasure import clean, erased, where
from tests.e2e.sessions.kept_notes import WARNED, read, settings, talk, wait_until_speaking
from tests.support.servers.app import open_app
from tests.support.wire.copies import exported, uid

SECRET = "What does Rumpelstilzchen pay for the spinning wheel?"
SENTENCE = "The team plan costs 300 yuan a month for ten seats."


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_it_is_erased_with_the_turn_that_it_was_made_from_and_not_with_another(tmp_path: Path) -> None:
    """Discriminates: a question that stays; one erased with any turn; warnings erased with it."""
    async with open_app(settings(tmp_path, rewrite=SECRET)) as app:
        streamed = await talk(app, SECRET)
        beside = await app.ask("Another beginning.", session_id=streamed.session_id, parent_turn_id=None)
        body = await erased(app, f"/turns/{beside.finished['turn_id']}", proof="full")
        assert clean(body["proof"])
        assert (await read(app, streamed.second))["rewritten_question"] == SECRET
        body = await erased(app, f"/turns/{streamed.first}", proof="full")
        assert clean(body["proof"])
        assert "conversations.rewritten_question.turn_ids" in json.dumps(body["proof"])
        assert await where(app, streamed.first, SECRET) == []
        left = await read(app, streamed.second)
        assert (left["warnings"], "rewritten_question" in left) == ([WARNED], False)
        copied = await exported(app, streamed.session_id)
        assert copied["turns"][0]["rewritten_question"] is None


@pytest.mark.slow("opens the application more than once")
async def test_it_is_erased_by_reference_too_and_after_its_turn_was_lost(tmp_path: Path) -> None:
    """Discriminates: a session that is looked up by the deleted turn."""
    async with open_app(settings(tmp_path, rewrite=SECRET)) as app:
        streamed = await talk(app)
        third = await app.ask("Hm?", session_id=streamed.session_id, parent_turn_id=streamed.second)
        await app.container.store.delete("conversations", models.PointIdsList(points=[streamed.second]))
        asked = {"kind": "turn", "name": streamed.second, "dry_run": "false"}
        done = (await app.client.post("/admin/erase", params=asked)).json()
        assert (done["counts"]["rewritten_questions"], done["proof"]["hits"]) == (1, 0)
        assert await where(app, streamed.second, SECRET) == []
        assert (await read(app, third.finished["turn_id"]))["warnings"] == [WARNED]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_same_words_in_another_conversation_are_not_a_trace(tmp_path: Path) -> None:
    """Discriminates: a proof that calls them a trace, which no erasure could remove."""
    async with open_app(settings(tmp_path, rewrite=SECRET)) as app:
        other, streamed = await talk(app), await talk(app, SECRET)
        assert clean((await erased(app, f"/turns/{streamed.first}", proof="full"))["proof"])
        assert (await read(app, other.second))["rewritten_question"] == SECRET


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_rewritten_question_being_answered_is_cleaned_when_it_ends(tmp_path: Path) -> None:
    """Discriminates: no cleaning of late answers."""
    async with open_app(settings(tmp_path, "One", 0.5, "two", rewrite=SECRET)) as app:
        streamed = await talk(app, SECRET)
        late = uid()
        asking = asyncio.create_task(
            app.ask("Hm?", session_id=streamed.session_id, parent_turn_id=streamed.first, turn_id=late)
        )
        await wait_until_speaking(app, late)
        assert (await erased(app, f"/turns/{streamed.first}"))["proof"]["complete"] is False
        await asking
        await app.container.sessions.erasure.close()
        assert await where(app, streamed.first, SECRET) == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_one_that_repeats_a_sentence_of_a_document_is_erased_with_the_document(tmp_path: Path) -> None:
    """Discriminates: a question that is not searched; a hit that no erasure can remove."""
    async with open_app(settings(tmp_path, rewrite=f"Is it true? {SENTENCE}")) as app:
        streamed = await talk(app)
        assert SENTENCE in (await read(app, streamed.second))["rewritten_question"]
        [document] = (await app.client.get("/documents")).json()["documents"]
        body = await erased(app, f"/documents/{document['document_id']}", proof="full")
        assert clean(body["proof"])
        assert await where(app, SENTENCE) == []
        assert "rewritten_question" not in await read(app, streamed.second)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_erasing_a_session_erases_its_rewritten_questions(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, rewrite=SECRET)) as app:
        streamed = await talk(app)
        body = await erased(app, f"/sessions/{streamed.session_id}", proof="full")
        assert clean(body["proof"])
        assert await where(app, streamed.first, streamed.second, SECRET) == []
