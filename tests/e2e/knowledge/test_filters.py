"""A question limited to tags, documents, sources or dates, from the request to what is stored of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import TurnRequest
from core.operations.erasure import ERASED_ID
from tests.e2e.conversation.test_rewriting import REWRITTEN, follow_up
from tests.e2e.conversation.test_rewriting import settings as rewriting
from tests.e2e.knowledge.test_search import search
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.wire.copies import exported, import_session, qa

HERON = "The heron pass costs {} crowns a month."
QUESTION = "What does the heron pass cost?"


@dataclass(frozen=True)
class Filled:
    app: App
    ids: dict[str, str]


async def fill(app: App) -> Filled:
    dated = {"old": "2023-05-01", "new": "2024-06"}
    ids = {
        name: await app.add_text(f"{name}.md", HERON.format(price), tags=tags, date=dated[name])
        for name, price, tags in (("old", "eighty", "contract,2023"), ("new", "ninety", "contract,2024"))
    }
    ids["bare"] = await app.add_text("bare.md", HERON.format("seventy"))
    return Filled(app, ids)


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Filled]:
    async with open_app(make_settings(tmp_path, retrieval={"rerank_score_threshold": 0.0})) as app:
        yield await fill(app)


async def names(app: App, question: str = QUESTION, **filters: Any) -> set[str]:
    """Return the names of the documents that an answer cites."""
    asked = await app.ask(question, filters=filters)
    return {source["file_name"].removesuffix(".md") for source in asked.sources}


async def turn_of(app: App, turn_id: str) -> dict[str, Any]:
    response = await app.client.get(f"/turns/{turn_id}")
    assert response.status_code == 200, response.text
    results: dict[str, Any] = response.json()
    return results


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_an_answer_cites_only_what_the_filters_allow(filled: Filled) -> None:
    """Discriminates: filtering only the citations; `filters` dropped between the route and the store; a range
    of one day refused."""
    app, ids = filled.app, filled.ids
    assert await names(app) == {"old", "new", "bare"}
    assert await names(app, tags=["2024"]) == {"new"}
    assert await names(app, tags=[" 2024 ", "2023"]) == {"old", "new"}
    assert await names(app, document_ids=[ids["bare"].upper()]) == {"bare"}
    assert await names(app, tags=["contract"], document_ids=[ids["bare"], ids["old"]]) == {"old"}
    assert await names(app, since="2024") == {"new"}
    assert await names(app, since="2023-05", until="2023-05") == {"old"}
    assert await names(app, since="2023-05-01", until="2023-05-01") == {"old"}  # one day
    assert await names(app, until="2024") == {"old", "new"}
    assert await names(app, sources=["nowhere"]) == set()
    hits = (await search(app, QUESTION, filters={"tags": ["2024"]}))["candidates"]
    assert [(one["file_name"], one["tags"], one["source"], one["date"]) for one in hits] == [
        ("new.md", ["contract", "2024"], "", "2024-06")
    ]


async def test_another_owners_document_is_not_found_by_its_id(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path,
        server={"api_keys": ["key-a", "key-b"]},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        files = {"file": ("mine.md", HERON.format("ninety").encode())}
        mine = {"Authorization": "Bearer key-a"}
        added = (await app.client.post("/documents", files=files, headers=mine)).json()
        await wait_for(app, added["job_id"], mine)
        body = {"question": QUESTION, "stream": False}
        body["filters"] = {"document_ids": [added["document"]["document_id"]]}
        cited = [
            len((await app.client.post(CHAT, json=body, headers=headers)).json()["sources"])
            for headers in (mine, {"Authorization": "Bearer key-b"})
        ]
    assert cited == [1, 0]


async def wait_for(app: App, job_id: str, headers: dict[str, str]) -> None:
    """Wait until the job has ended."""
    response = await app.client.get(f"/jobs/{job_id}/stream", headers=headers)
    assert response.status_code == 200


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"tag": ["a"]}, "filters.tag"),
        ({"tags": "a"}, "filters.tags"),
        ({"tags": [1]}, "filters.tags.0"),
        ({"tags": ["a", " "]}, "filters.tags.1"),
        ({"tags": ["x" * 65]}, "filters.tags.0"),
        ({"tags": ["a\0"]}, "filters.tags.0"),
        ({"tags": [str(n) for n in range(33)]}, "filters.tags"),
        ({"document_ids": ["no-uuid"]}, "filters.document_ids.0"),
        ({"document_ids": [str(uuid.uuid4()) for _ in range(101)]}, "filters.document_ids"),
        ({"sources": ["x" * 65]}, "filters.sources.0"),
        ({"sources": [str(n) for n in range(33)]}, "filters.sources"),
        ({"since": "2024-13"}, "filters.since"),
        ({"until": "yesterday"}, "filters.until"),
        ({"since": 2024}, "filters.since"),
        ({"since": "2024-06", "until": "2024-05-31"}, "filters.until"),
        ([], "filters"),
    ],
)
async def test_an_impossible_filter_is_refused_by_its_name(app: App, filters: Any, field: str) -> None:
    for path in (CHAT, "/search"):
        response = await app.client.post(path, json={"question": QUESTION, "filters": filters})
        assert response.status_code == 422, response.text
        assert response.json()["error"]["message"].startswith(f"{field}: ")


async def test_the_maximum_of_every_limit_is_accepted(app: App) -> None:
    """Discriminates: a month compared by its first day with the year that contains it."""
    most = {
        "tags": [f"{n:064}" for n in range(32)],
        "document_ids": [str(uuid.uuid4()) for _ in range(100)],
        "sources": [f"{n:064}" for n in range(32)],
        "since": "2024-05",
        "until": "2024",
    }
    asked = await app.ask(QUESTION, filters=most)
    assert asked.finished["status"] == "completed"
    for nothing in (None, {}, {"tags": [], "since": ""}):
        turn = await turn_of(app, (await app.ask(QUESTION, filters=nothing)).finished["turn_id"])
        assert "filters" not in turn


async def test_a_turn_id_identifies_one_question_with_its_filters(filled: Filled) -> None:
    """Discriminates: filters left out of the comparison; their order making it a different request."""
    app, turn_id = filled.app, str(uuid.uuid4())
    body = {"question": QUESTION, "turn_id": turn_id}
    first = await app.ask(QUESTION, turn_id=turn_id, filters={"tags": ["2024", "2023"]})
    again = await app.ask(QUESTION, turn_id=turn_id, filters={"tags": ["2023", "2024", "2023"]})
    assert again.sources == first.sources
    others: list[Any] = [{}, {"tags": ["2024"]}, {"tags": ["2023", "2024"], "since": "2020"}]
    for other in others:
        response = await app.client.post(CHAT, json={**body, "filters": other})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "turn_conflict")
    assert (await app.client.post(CHAT, json=body)).status_code == 409


def test_turns_from_before_filters_existed_can_still_be_sent_again() -> None:
    """Discriminates: a fingerprint that contains filters although there are none."""
    assert TurnRequest("Why?", "local").fingerprint == "a83c64ef439f15eb7829a1e94aee78b6"


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_the_filters_are_stored_with_the_turn_and_shown_with_its_prompt(filled: Filled) -> None:
    """Discriminates: not storing them; a record of the prompt that cannot say what was sent."""
    app = filled.app
    filters = {"tags": ["2024"], "since": "2024", "until": "2024-12-31"}
    asked = await app.ask(QUESTION, filters=filters)
    turn_id = asked.finished["turn_id"]
    assert (await turn_of(app, turn_id))["filters"] == filters
    prompt = (await app.client.get(f"/turns/{turn_id}/prompt")).json()
    assert prompt["filters"] == filters
    assert prompt["request"]["exact"] is True
    assert "Search scope: tags: 2024; dated 2024 to 2024-12-31" in prompt["request"]["body"]
    session = await exported(app, asked.session_id)
    assert session["turns"][0]["filters"] == filters
    text = (await app.client.get(f"/sessions/{asked.session_id}/export?format=md")).text
    assert "**Search scope** tags: 2024; dated 2024 to 2024-12-31" in text
    await app.client.delete(f"/sessions/{asked.session_id}")
    back = await app.client.post("/sessions/import", json=session)
    assert back.status_code == 201, back.text
    assert (await turn_of(app, turn_id))["filters"] == filters


async def test_damaged_filters_do_not_lose_the_turn(app: App) -> None:
    """Discriminates: reading the filters as if this version had written them."""
    imported = await import_session(app, turns=[qa(filters={"tags": ["a"], "until": "whenever"})])
    [turn_id] = imported["turns"]
    assert (await turn_of(app, turn_id))["filters"] == {"tags": ["a"], "until": "whenever"}
    hurt: list[Any] = ["x", 5, {"tags": 5}, {"tags": [{}]}, {"since": ["x"]}]
    for damaged in hurt:
        await app.container.store.set_payload("conversations", {"filters": damaged}, points=[turn_id])
        assert "filters" not in await turn_of(app, turn_id)
        session = await exported(app, imported["session_id"])
        assert session["turns"][0]["filters"] == {}


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_when_nothing_matches_the_answer_says_that_it_was_limited(filled: Filled) -> None:
    """Discriminates: "the documents contain nothing", which is not true of those that were not searched."""
    app = filled.app
    english = await app.ask(QUESTION, filters={"tags": ["2030"]})
    assert english.text("CONTENT").startswith(
        "Within the limits of this question (tags: 2030), the documents"
    )
    statuses = [status["message"] for status in english.statuses if status["stage"] == "filtering"]
    assert statuses == ["Nothing relevant was found within the limits of the question."]
    chinese = await app.ask(
        "苍鹭通票多少钱？", filters={"tags": ["合同"], "document_ids": [filled.ids["old"]]}
    )
    expected = "在所限定的范围内（标签：合同；指定的 1 份文档）没有找到能回答这个问题的内容。"
    assert chinese.text("CONTENT").startswith(expected)
    unlimited = await app.ask("苍鹭通票多少钱？", filters={})
    assert "限定" not in unlimited.text("CONTENT")


async def test_the_extractive_model_reads_the_filters_in_every_layout(tmp_path: Path) -> None:
    layouts = ("auto", "many_system", "system_field", "flat")
    quoting = {layout: {"provider": "extractive", "layout": layout} for layout in layouts}
    async with open_app(make_settings(tmp_path, models={"llms": quoting})) as app:
        for layout in layouts:
            how: dict[str, Any] = {"model_id": layout}
            first = await app.ask("What is this?", **how)
            asked = await app.ask(QUESTION, session_id=first.session_id, filters={"tags": ["2030"]}, **how)
            assert "(tags: 2030)" in asked.text("CONTENT"), layout
            assert "limits" not in first.text("CONTENT"), layout


async def test_a_model_receives_the_filters_with_passages_and_without(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok", record_as="limited")}},
        retrieval={"rerank_score_threshold": 0.0},
    )
    RECORDED.pop("limited", None)
    async with open_app(settings) as app:
        filled = await fill(app)
        await filled.app.ask(QUESTION, filters={"tags": ["2024"]})
        await filled.app.ask(QUESTION, filters={"tags": ["2030"]})
        await filled.app.ask(QUESTION)
    with_passages, without, unlimited = RECORDED["limited"]
    assert "Search scope: tags: 2024\n" in with_passages[-1][1]
    assert "Search scope: tags: 2030\nOnly this scope was searched" in without[0][1]
    assert "Search scope" not in json.dumps(unlimited)


async def test_the_search_with_a_rewritten_question_keeps_the_filters(tmp_path: Path) -> None:
    """Discriminates: the rewritten question searched in everything."""
    async with open_app(rewriting(tmp_path, REWRITTEN)) as app:
        session, question = await follow_up(app)
        await app.add_text("more.md", "The team plan, told again: 300 yuan a month.", tags="again")
        asked = await app.ask(question, session_id=session, filters={"tags": ["again"]})
    assert [status["stage"] for status in asked.statuses].count("rewriting") == 2
    assert [source["file_name"] for source in asked.sources] == ["more.md"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_why_not_says_that_a_document_is_excluded_by_the_filters(filled: Filled) -> None:
    """Discriminates: blaming the rankings for what the filter excluded."""
    app, ids = filled.app, filled.ids
    limited = {"filters": {"tags": ["2024"]}}
    beyond = (await search(app, QUESTION, document_id=ids["bare"], **limited))["document"]
    assert (beyond["stage"], beyond["chunks"][0]["stage"]) == ("filters", "filters")
    assert "excluded by the filters" in beyond["message"]
    within = (await search(app, QUESTION, document_id=ids["new"], **limited))["document"]
    assert within["stage"] == "shown"
    assert within["chunks"][0]["dense"]["rank"] == 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_why_not_says_that_a_copy_was_used_instead(filled: Filled) -> None:
    """Discriminates: showing one text twice, or blaming fusion for it."""
    app = filled.app
    copy = await app.add_text("copy.md", HERON.format("seventy") + "\n")
    hits = (await search(app, QUESTION))["candidates"]
    assert len(hits) == len({(one["text"], one["date"]) for one in hits})
    shown = {one["document_id"] for one in hits}
    [hidden] = {copy, filled.ids["bare"]} - shown
    report = (await search(app, QUESTION, document_id=hidden))["document"]
    assert report["stage"] == "duplicate"
    assert "exactly the same" in report["message"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_erased_document_leaves_no_id_in_the_filters(filled: Filled) -> None:
    """Discriminates: scrubbing only the citations."""
    app, ids = filled.app, filled.ids
    chosen = [ids["old"], ids["new"]]
    empty = await app.ask(QUESTION, filters={"document_ids": [ids["old"]], "tags": ["2030"]})
    asked = await app.ask(QUESTION, filters={"document_ids": chosen})
    response = await app.client.delete(f"/documents/{ids['old']}?proof=full")
    assert response.status_code == 200, response.text
    assert (response.json()["proof"]["hits"], response.json()["proof"]["complete"]) == (0, True)
    left = [
        (await turn_of(app, each.finished["turn_id"]))["filters"]["document_ids"] for each in (empty, asked)
    ]
    assert left[0] == [ERASED_ID]
    assert sorted(left[1]) == sorted([ERASED_ID, ids["new"]])
