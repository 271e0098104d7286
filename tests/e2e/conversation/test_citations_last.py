"""Citations are permanent: the same after a restart and in a copy, and intact when a document is deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from core.formats import reading_of
from core.operations.erasure import ERASED_ID
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.wire.copies import branch, exported, import_session
from tests.support.wire.sse import Streamed, frames

FEES = """# 费用说明

专业版每月 99 元，按年付费打八折。团队版请联系销售。\U0001f600\U00020000

# 退款

退款申请提交以后，七个工作日内到账。
"""
RULES = "# Refunds\n\nA refund takes seven working days. It is paid back in yuan."


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(without_threshold(tmp_path)) as opened:
        yield opened


def without_threshold(folder: Path, *script: str) -> Settings:
    """Every candidate is cited; with a script, a model that answers with it."""
    models = {"llms": {"default": scripted(*script)}} if script else {}
    return make_settings(folder, models=models, retrieval={"rerank_score_threshold": 0.0})


def holds(source: dict[str, Any]) -> bool:
    """The offsets locate the passage, in code points."""
    return bool(source["text"][source["passage_start"] : source["passage_end"]] == source["key_passage"])


async def turn(app: App, turn_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (await app.client.get(f"/turns/{turn_id}")).json()
    return body


async def replayed(app: App, turn_id: str) -> list[dict[str, Any]]:
    response = await app.client.get(f"/turns/{turn_id}/stream")
    return Streamed(frames(response.text)).sources


async def everywhere(app: App, asked: Streamed) -> list[list[dict[str, Any]]]:
    """The sources of a session's only turn as each route returns them."""
    turn_id = str(asked.finished["turn_id"])
    return [
        (await turn(app, turn_id))["sources"],
        (await branch(app, asked.session_id))[0]["sources"],
        await replayed(app, turn_id),
    ]


def unflagged(sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    flags = ("removed", "outdated")
    return [{key: value for key, value in source.items() if key not in flags} for source in sources]


async def test_a_citation_names_the_answering_sentences_and_their_version(app: App) -> None:
    await app.add_text("fees.md", FEES, date="2026-01-31")
    asked = await app.ask("专业版每月多少钱？")
    assert asked.sources
    assert all(holds(source) for source in asked.sources)
    first = asked.sources[0]
    assert "专业版每月 99 元" in first["key_passage"]
    assert first["cited"] is True
    assert re.fullmatch(rf"[0-9a-f]{{16}}\.{reading_of('fees.md')}", first["version"])
    assert first["date"] == "2026-01-31"
    assert not {"removed", "outdated"} & first.keys()


@pytest.mark.slow("opens the application more than once")
async def test_citations_are_the_same_after_a_restart_on_every_route(tmp_path: Path) -> None:
    settings = without_threshold(tmp_path)
    async with open_app(settings) as app:
        await app.add_text("fees.md", FEES)
        asked = await app.ask("退款要多久？")
        assert await everywhere(app, asked) == [asked.sources] * 3
    async with open_app(settings) as app:
        assert asked.sources
        assert await everywhere(app, asked) == [asked.sources] * 3


def emptied(sources: list[dict[str, Any]], document_id: str) -> list[dict[str, Any]]:
    """What remains of the citations of an erased document: their places, scores and marks."""
    deleted = {
        "document_id": ERASED_ID, "chunk_id": ERASED_ID, "file_name": "", "heading": "", "key_passage": "",
        "text": "", "reason": "", "version": "", "date": "", "page": None, "char_start": 0, "char_end": 0,
        "passage_start": None, "passage_end": None,
    }  # fmt: skip
    return [{**one, **deleted} if one["document_id"] == document_id else one for one in sources]


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_a_deleted_document_is_shown_as_removed_and_its_snapshot_erased(app: App) -> None:
    """Discriminates: an export that contains the flags; a lookup that ignores the owner or failed
    documents."""
    fees, rules = await app.add_text("fees.md", FEES), await app.add_text("rules.md", RULES)
    asked = await app.ask("How long does a refund take? 退款要多久？", rerank_top_n=10)
    assert {source["document_id"] for source in asked.sources} == {fees, rules}
    assert (await app.client.delete(f"/documents/{fees}")).status_code == 200
    before = emptied(asked.sources, fees)
    for sources in await everywhere(app, asked):
        assert unflagged(sources) == before
        assert [source.get("removed", False) for source in sources] == [
            source["document_id"] == ERASED_ID for source in sources
        ]
        assert not any("outdated" in source for source in sources)
    assert (await exported(app, asked.session_id))["turns"][0]["sources"] == before
    whole = await app.client.post(
        "/knowledge_chat_conversation",
        json={"question": "And now?", "session_id": asked.session_id, "stream": False},
    )
    assert all(source["document_id"] != fees for source in whole.json()["sources"])
    await app.add_text("fees.md", FEES)  # the same bytes are the same document; erased text stays erased
    assert unflagged((await everywhere(app, asked))[0]) == before


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_new_content_of_a_cited_document_is_shown_as_outdated(app: App) -> None:
    fees = await app.add_text("fees.md", FEES)
    asked = await app.ask("专业版每月多少钱？")
    await app.container.store.set_payload("documents", {"content_hash": "f" * 64}, points=[fees])
    sources = await everywhere(app, asked)
    assert all(source["outdated"] is True for of_turn in sources for source in of_turn)
    assert not any("removed" in source for of_turn in sources for source in of_turn)
    assert unflagged(sources[0]) == asked.sources


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_imported_copy_is_the_same_and_can_be_copied_again(app: App) -> None:
    fees = await app.add_text("fees.md", FEES)
    asked = await app.ask("专业版每月多少钱？")
    await app.client.delete(f"/documents/{fees}")
    copy = await exported(app, asked.session_id)
    await app.client.delete(f"/sessions/{asked.session_id}")
    await import_session(app, **copy)
    assert await exported(app, asked.session_id) == copy
    [brought_in] = await branch(app, asked.session_id)
    assert all(source["removed"] is True for source in brought_in["sources"])
    assert unflagged(brought_in["sources"]) == emptied(asked.sources, fees)


async def test_an_import_with_a_wrong_position_loses_the_position_and_nothing_else(app: App) -> None:
    source = {"index": 1, "file_name": "a.md", "text": "One. Two.", "key_passage": "Two.",
              "passage_start": 0, "passage_end": 4, "version": "v", "document_id": "elsewhere"}  # fmt: skip
    imported = await import_session(app, turns=[{"question": "?", "answer": "[1]", "sources": [source]}])
    [citation] = (await turn(app, imported["turns"][0]))["sources"]
    assert (citation["key_passage"], citation["passage_start"], citation["passage_end"]) == (
        "Two.",
        None,
        None,
    )
    assert (citation["version"], citation["removed"]) == ("v", True)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_prompts_of_a_turn_and_of_its_follow_up_lose_the_document(tmp_path: Path) -> None:
    settings = without_threshold(tmp_path, "It is so [1].")
    async with open_app(settings) as app:
        fees = await app.add_text("fees.md", FEES)
        first = await app.ask("专业版每月多少钱？")
        second = await app.ask("那退款要多久？", session_id=first.session_id)
        prompts = []
        for _ in range(2):
            for asked in (first, second):
                response = await app.client.get(f"/turns/{asked.finished['turn_id']}/prompt")
                request = response.json()["request"]
                prompts.append((request["exact"], first.sources[0]["text"] in request["body"]))
            await app.client.delete(f"/documents/{fees}")
        assert prompts == [(True, True), (True, True), (False, False), (False, False)]
        assert second.sources


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_truncated_answer_has_complete_citations(tmp_path: Path) -> None:
    async with open_app(without_threshold(tmp_path, "专业版每月 99 元 [1]", "!")) as app:
        await app.add_text("fees.md", FEES)
        asked = await app.ask("专业版每月多少钱？")
        assert asked.finished["status"] == "failed"
        assert asked.sources
        assert all(holds(source) for source in asked.sources)
        assert asked.sources[0]["cited"] is True
        assert (await turn(app, str(asked.finished["turn_id"])))["sources"] == asked.sources


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_model_that_never_answers_leaves_complete_citations(tmp_path: Path) -> None:
    """Discriminates: choosing key passages only after the first token."""
    async with open_app(without_threshold(tmp_path, "!")) as app:
        await app.add_text("fees.md", FEES)
        asked = await app.ask("专业版每月多少钱？")
        [stored] = await branch(app, asked.session_id)
        assert stored["status"] == "failed"
        assert stored["sources"]
        assert all(holds(source) for source in stored["sources"])
