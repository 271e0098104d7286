"""POST /search with `document_id`: why was this document not found?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.knowledge import DocumentStatus
from services.retrieval.retriever import Fusion, Retriever
from tests.e2e.knowledge.test_search import BINS, FEES, search
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.stores.knowledge import save

PASSES = "# Passes\n\nThe heron pass is sold at the gate."


@asynccontextmanager
async def filled(
    tmp_path: Path, bins: str = BINS, **sections: Any
) -> AsyncIterator[tuple[App, dict[str, str]]]:
    """Three documents, and their ids by name."""
    async with open_app(make_settings(tmp_path, **sections)) as app:
        texts = (("fees.md", FEES), ("bins.md", bins), ("passes.md", PASSES))
        yield app, {name: await app.add_text(name, text) for name, text in texts}


def fuse_as(app: App, fusion: Fusion) -> None:
    """As the fusion in `POST /search`."""
    container, search_handler = app.container, app.container.search
    settings = container.settings
    collection = settings.store.knowledge_collection
    retriever = Retriever(container.store, collection, settings.retrieval, fusion)
    search_handler.pipeline = replace(search_handler.pipeline, retriever=retriever)


async def why(app: App, question: str, document_id: str, **body: Any) -> dict[str, Any]:
    document: dict[str, Any] = (await search(app, question, document_id=document_id, **body))["document"]
    assert document["document_id"] == document_id
    return document


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_document_reports_the_last_stage_it_reached(tmp_path: Path) -> None:
    """Discriminates: taking a document's first chunk for its best."""
    async with filled(tmp_path, retrieval={"rerank_score_threshold": 0.0}) as (app, ids):
        shown = await why(app, "deleted files", ids["bins.md"])
        behind = await why(app, "refunds seven days", ids["bins.md"], top_n=1)
        second = await why(app, "refunds seven days", ids["fees.md"], top_n=1)
    assert (shown["stage"], shown["status"]) == ("shown", "ready")
    assert shown["message"] == "It was found and would be shown to the model."
    best = shown["chunks"][0]
    assert (best["dense"]["rank"], best["sparse"]["rank"], best["sparse"]["kept"]) == (1, 1, True)
    assert best["reranked"]["rank"] == best["fused"]["rank"] == best["budget"]["index"] == 1
    assert best["key_passage"] in BINS
    assert behind["stage"] == "top_n"
    assert behind["chunks"][0]["reranked"]["rank"] > 1
    assert [chunk["heading"] for chunk in second["chunks"]] == ["Refunds", "Fees"]
    assert [chunk["stage"] for chunk in second["chunks"]] == ["shown", "top_n"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_threshold_is_named_in_the_language_of_the_question(tmp_path: Path) -> None:
    async with filled(tmp_path, retrieval={"rerank_score_threshold": 1.0}) as (app, ids):
        document = await why(app, "回收站 deleted files 保留", ids["bins.md"])
    assert document["stage"] == "threshold"
    assert "RERANK_SCORE_THRESHOLD" in document["message"]
    assert document["message"].startswith("检索到了它")
    assert 0 <= document["chunks"][0]["reranked"]["probability"] < 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_document_without_room_is_dropped_by_the_budget(tmp_path: Path) -> None:
    narrow = scripted("ok", context_window=512, max_tokens=300)
    sections = {"models": {"llms": {"default": narrow}}, "retrieval": {"rerank_score_threshold": 0.0}}
    async with filled(tmp_path, BINS + " word" * 220, **sections) as (app, ids):
        document = await why(app, "deleted files", ids["bins.md"])
    assert document["stage"] == "budget"
    assert document["chunks"][0]["budget"]["index"] is None


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_with_a_single_slot_every_other_document_says_what_it_lacked(tmp_path: Path) -> None:
    """Discriminates: deciding by the candidates alone, which cannot distinguish fusion from the lists before
    it."""
    one_place = {"rerank_score_threshold": 0.0, "reranker_input_top_n": 1}
    async with filled(tmp_path, retrieval=one_place) as (app, ids):
        fuse_as(app, Fusion(dense_weight=0.1))
        by_words, by_meaning, by_none = [
            await why(app, "crowns at is", ids[name]) for name in ("fees.md", "passes.md", "bins.md")
        ]
    assert by_words["stage"] == "shown"
    assert by_meaning["stage"] == "fusion"
    near = by_meaning["chunks"][0]["dense"]
    assert (near["rank"], near["kept"], near["score"] >= near["last_score"]) == (1, True, True)
    assert by_none["stage"] == "not_found_by_any_list"
    missed = by_none["chunks"][0]
    assert (missed["dense"]["kept"], missed["dense"]["rank"] > 1) == (False, True)
    assert missed["dense"]["score"] < missed["dense"]["last_score"]
    assert missed["sparse"] is None
    assert [missed[stage] for stage in ("fused", "reranked", "budget")] == [None, None, None]
    assert 0 <= missed["alone_probability"] <= 1


async def test_a_document_that_is_not_ready_reports_its_status(app: App) -> None:
    document_id = await app.add_text("bins.md", BINS)
    document = await app.container.knowledge.get_document(document_id, ["local"])
    cases = (
        (DocumentStatus.INGESTING, None, "still being read"),
        (DocumentStatus.FAILED, "It is torn.", "upload it again"),
    )
    for status, error, says in cases:
        await save(app.container.store, replace(document, status=status, error=error))
        explained = await why(app, "deleted files", document_id)
        assert (explained["stage"], explained["status"], explained["error"]) == (
            "not_ready",
            status.value,
            error,
        )
        assert says in explained["message"]
        assert explained["chunks"] == []
