"""POST /search: every candidate stage by stage, as the chat would use it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import App, make_settings, open_app, scripted

FEES = (
    "# Fees\n\nThe heron pass costs ninety crowns a month.\n\n"
    "# Refunds\n\nRefunds of the heron pass take seven days."
)
BINS = "# Bins\n\nThe recycling bin keeps deleted files for thirty days."
STAGES = ("dense", "sparse", "fused", "reranked", "budget")


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(make_settings(tmp_path, retrieval={"rerank_score_threshold": 0.0})) as app:
        await app.add_text("fees.md", FEES)
        await app.add_text("bins.md", BINS)
        yield app


async def search(app: App, question: str, **body: Any) -> dict[str, Any]:
    response = await app.client.post("/search", json={"question": question, **body})
    assert response.status_code == 200, response.text
    results: dict[str, Any] = response.json()
    return results


async def refused(app: App, **body: Any) -> tuple[int, str, str]:
    response = await app.client.post("/search", json={"question": "heron", **body})
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


async def test_every_candidate_has_its_rank_and_score_at_every_stage(filled: App) -> None:
    """Discriminates: attributing to the threshold what top_n cut."""
    hits = (await search(filled, "What does the heron pass cost?"))["candidates"]
    assert len(hits) == 3
    assert all(set(STAGES) <= set(one) for one in hits)
    assert [one["reranked"]["rank"] for one in hits] == [1, 2, 3]
    assert sorted(one["fused"]["rank"] for one in hits) == [1, 2, 3]
    assert hits[0]["file_name"] == "fees.md"
    assert hits[0]["sparse"]["rank"] == 1
    assert hits[0]["sparse"]["score"] > 0
    without_words = [one for one in hits if not one["sparse"]["score"]]
    assert without_words
    assert {one["sparse"]["rank"] for one in without_words} == {None}
    assert {one["dense"]["rank"] for one in hits} == {1, 2, 3}
    assert all(one["reranked"]["probability"] == one["probability"] for one in hits)
    assert [one["budget"]["index"] for one in hits] == [1, 2, 3]
    assert all(one["budget"]["tokens"] > 10 for one in hits)
    assert all(one["kept"] and one["dropped_by"] is None for one in hits)
    cut = (await search(filled, "What does the heron pass cost?", top_n=1))["candidates"]
    assert [one["dropped_by"] for one in cut] == [None, "top_n", "top_n"]
    assert [one["budget"] and one["budget"]["index"] for one in cut] == [1, None, None]
    assert [one["kept"] for one in cut] == [True, False, False]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_unlikely_candidates_are_dropped_by_the_threshold(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, retrieval={"rerank_score_threshold": 1.0})) as app:
        await app.add_text("bins.md", BINS)
        hits = (await search(app, "deleted files"))["candidates"]
    assert [(one["dropped_by"], one["budget"]) for one in hits] == [("threshold", None)]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_what_does_not_fit_is_dropped_by_the_budget_as_in_the_chat(tmp_path: Path) -> None:
    """Discriminates: fitting the passages without the history and the persona that share the window with
    them."""
    long = "\n\n".join(f"# Part {at}\n\n" + f"The heron pass, part {at}: " + "word " * 120 for at in range(6))
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok [1]", context_window=2_048, max_tokens=256)}},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        await app.add_text("long.md", long)
        alone = (await search(app, "heron pass"))["candidates"]
        first = await app.ask("heron pass " + "and so on " * 150)
        body = {"session_id": first.session_id}
        beside = (await search(app, "heron pass", **body))["candidates"]
        answered = await app.ask("heron pass", **body)
    shown = [one["chunk_id"] for one in beside if one["kept"]]
    assert shown == [source["chunk_id"] for source in answered.sources]
    assert len(shown) < len([one for one in alone if one["kept"]])
    lost = [one for one in beside if one["dropped_by"] == "budget"]
    assert lost
    assert all(one["budget"]["index"] is None and one["budget"]["tokens"] > 100 for one in lost)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_session_influences_the_search_like_its_previous_questions(filled: App) -> None:
    """Discriminates: searching a session's follow-up without its context."""
    asked = await filled.ask("What does the heron pass cost?")
    raw = await search(filled, "and it?")
    reply = await search(
        filled,
        "and it?",
        previous_questions=["What does the heron pass cost?"],
        last_answer=asked.answer,
    )
    of_session = await search(filled, "and it?", session_id=asked.session_id)
    fresh = await search(filled, "and it?", session_id=asked.session_id, parent_turn_id=None)
    named = await search(
        filled, "and it?", session_id=asked.session_id, parent_turn_id=asked.finished["turn_id"]
    )
    assert retrieved(of_session) == retrieved(reply) == retrieved(named)
    assert retrieved(fresh) == retrieved(raw) != retrieved(reply)
    other = (await filled.ask("And the bins?")).finished["turn_id"]
    refusal = await refused(filled, session_id=asked.session_id, parent_turn_id=other)
    assert refusal[:2] == (422, "invalid_parent_turn")  # refused as in the chat


def retrieved(hits: dict[str, Any]) -> list[Any]:
    return [(one["chunk_id"], one["dense"], one["sparse"], one["fused"]) for one in hits["candidates"]]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_context_of_a_search_is_bounded_and_given_in_only_one_way(filled: App) -> None:
    session = str(uuid.uuid4())
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"previous_questions": ["x"] * 11}, 422, "previous_questions"),
        ({"previous_questions": ["x" * 8_001]}, 422, "previous_questions"),
        ({"previous_questions": "x"}, 422, "previous_questions"),
        ({"last_answer": "x" * 100_001}, 422, "last_answer"),
        ({"date": "31.1.2026"}, 422, "date"),
        ({"date": "2026-13"}, 422, "date"),
        ({"session_id": session, "previous_questions": ["x"]}, 422, "session_id"),
        ({"session_id": session, "last_answer": "x"}, 422, "session_id"),
        ({"parent_turn_id": None}, 422, "session_id"),
        ({"session_id": "x"}, 422, "session_id"),
        ({"session_id": session}, 404, "session_id"),
        ({"model_id": "nobody"}, 404, "model_id"),
        ({"document_id": session}, 404, "document_id"),
        ({"documents": []}, 422, "documents"),
    ]
    for body, status, field in cases:
        observed, _, message = await refused(filled, **body)
        assert (observed, field in message) == (status, True), (body, message)
    for date in ("2026", "2026-01", "2026-01-31"):
        await search(filled, "heron", date=date, previous_questions=["x"] * 10)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_nobody_searches_with_the_session_or_the_document_of_another(tmp_path: Path) -> None:
    """Discriminates: reading the session, or the document, without checking its owner."""
    settings = make_settings(tmp_path, server={"api_keys": ["key-ann", "key-bob"]})
    async with open_app(settings) as app:
        app.client.headers["authorization"] = "Bearer key-ann"
        asked = await app.ask("heron?")
        response = await app.client.post("/documents", files={"file": ("fees.md", FEES.encode())})
        document_id = response.json()["document"]["document_id"]
        app.client.headers["authorization"] = "Bearer key-bob"
        assert (await refused(app, session_id=asked.session_id))[:2] == (404, "unknown_session")
        assert (await refused(app, document_id=document_id))[:2] == (404, "unknown_document")
        assert (await search(app, "heron"))["candidates"] == []


async def test_a_word_with_a_typing_error_is_searched_for_as_the_documents_write_it(filled: App) -> None:
    """Discriminates: searching only for the word as typed, which no document has."""
    typed = (await search(filled, "recyling"))["candidates"][0]
    written = (await search(filled, "recycling"))["candidates"][0]
    assert typed["file_name"] == "bins.md"
    assert typed["sparse"] == written["sparse"]
    reply = await filled.ask("How long are files kept in the recyling bin?")
    assert "thirty days" in reply.answer
