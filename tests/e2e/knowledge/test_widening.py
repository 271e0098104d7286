"""A hit widened by its neighbours: text just outside a chunk becomes visible, and is recorded as sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.search.handler import SearchRequest
from services.retrieval.surroundings import Neighbours, Widener
from tests.e2e.knowledge.test_search import search
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted

QUESTION = "What is the warranty of the heron lamp?"
FACT = "It is forty-one months."
# the answer is in the paragraph after the one with the question's words
TEXT = (
    "# Lamps\n\nThe heron lamp is made of brass and glass by two smiths in the harbour town of Ost. "
    "The warranty of the heron lamp was asked for by many of those who bought it last year.\n\n"
    f"{FACT} Whoever has kept the receipt may bring it back to the shop in which it was bought before.\n\n"
    "# Boats\n\nThe boats are painted every spring with three coats of white lead paint by the crew."
)


def pad(name: str) -> str:
    return f"# {name}\n\nThe heron lamp of {name} has a warranty that is told in the other leaflet."


@asynccontextmanager
async def opened(tmp_path: Path, tokens: int, **model: Any) -> AsyncIterator[App]:
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok [1]", record_as="widened", **model)}},
        knowledge={"chunk_tokens": 48},
        retrieval={"rerank_score_threshold": 0.0},
    )
    RECORDED.pop("widened", None)
    async with open_app(settings) as app:
        await app.add_text("lamps.md", TEXT)
        widen(app, tokens)
        yield app


def widen(app: App, tokens: int) -> None:
    """As the container would with the setting."""
    names = app.container.settings.store
    widener = Widener(Neighbours(app.container.store, names.knowledge_collection), tokens) if tokens else None
    for handler in (app.container.chat, app.container.search):
        handler.pipeline = replace(handler.pipeline, widener=widener)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_answer_in_the_next_paragraph_is_sent_and_the_citation_stays_the_hit(
    tmp_path: Path,
) -> None:
    """Discriminates: not widening; a citation whose text and passage are no longer the chunk's."""
    reported, sizes = {}, {}
    for tokens in (0, 60):
        async with opened(tmp_path / str(tokens), tokens) as app:
            asked = await app.ask(QUESTION, rerank_top_n=1)
            [source] = asked.sources
            shown = (await app.client.get(f"/turns/{asked.finished['turn_id']}/prompt")).json()
            hits = (await search(app, QUESTION, top_n=1))["candidates"]
        reported[tokens] = RECORDED["widened"][0][-1][1]
        sizes[tokens] = hits[0]["budget"]["tokens"]
        assert "warranty" in source["text"]
        assert FACT not in source["text"]
        assert source["key_passage"] in source["text"]
        assert source["text"][source["passage_start"] : source["passage_end"]] == source["key_passage"]
        assert shown["request"]["exact"] is True
        assert FACT not in hits[0]["text"]
    assert FACT not in reported[0]
    assert FACT in reported[60]
    assert "boats" not in reported[60]  # another section
    assert 0 < sizes[60] - sizes[0] <= 2 * 60  # the model's tokens are estimated more cautiously


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_no_hit_and_no_history_is_dropped_for_a_neighbour(tmp_path: Path) -> None:
    """Discriminates: fitting the widened passages as if they were the whole prompt."""
    remaining: dict[int, list[int]] = {}
    for tokens in (0, 2_000):
        async with opened(tmp_path / str(tokens), tokens, context_window=900, max_tokens=100) as app:
            for name in ("Ibis", "Crane", "Stork", "Egret", "Bittern"):
                await app.add_text(f"{name}.md", pad(name) + f" {FACT} More is said of it. " * 12)
            request = SearchRequest(QUESTION, "local")
            report = await app.container.search.search(request)
            remaining[tokens] = [one.index for one in report.candidates if one.index]
    assert remaining[0] == remaining[2_000]
    assert len(remaining[0]) > 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_erased_document_disappears_from_widened_prompts_too(tmp_path: Path) -> None:
    """Discriminates: a record of the prompt that keeps text of an erased document."""
    async with opened(tmp_path, 60) as app:
        asked = await app.ask(QUESTION)
        turn_id, document_id = asked.finished["turn_id"], asked.sources[0]["document_id"]
        response = await app.client.delete(f"/documents/{document_id}?proof=full")
        assert response.json()["proof"]["hits"] == 0
        prompt = (await app.client.get(f"/turns/{turn_id}/prompt")).text
    assert FACT not in prompt
    assert "brass" not in prompt
