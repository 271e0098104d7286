"""A follow-up that finds nothing with its own words is rewritten by the model, once."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from config.settings import Settings
from tests.support.models.scripted_llm import RECORDED, ScriptedLLM, Step
from tests.support.servers.app import App, make_settings, open_app
from tests.support.waiting import until

FEES = "# Team plan\nThe team plan costs 300 yuan a month for ten seats.\n"
REWRITTEN = "What does the team plan cost a month?"


class RewritingLLM(ScriptedLLM):
    """Plays `rewrite` when asked to rewrite a question, otherwise its script."""

    rewrite: tuple[Step, ...] = (REWRITTEN,)

    def script_for(self, messages: Sequence[ChatMessage]) -> Sequence[Step]:
        rewriting = "rewrite the last question" in (messages[0].content or "")
        return self.rewrite if rewriting else self.script


class OneQuestionReranker(BaseNodePostprocessor):
    """Scores everything high for the rewritten question, and low for every other."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        asked = query_bundle.query_str if query_bundle else ""
        return [NodeWithScore(node=node.node, score=0.9 if asked == REWRITTEN else 0.01) for node in nodes]


def settings(folder: Path, *rewrite: Step, record_as: str = "", **retrieval: Any) -> Settings:
    options = {"script": ["Fine."], "rewrite": list(rewrite), "record_as": record_as}
    table = {"provider": f"llama_index:{__name__}:RewritingLLM", "options": options}
    return make_settings(
        folder,
        models={"llms": {"default": table}, "reranker": f"llama_index:{__name__}:OneQuestionReranker"},
        retrieval={"rewrite_timeout_s": 5, **retrieval},
    )


async def follow_up(app: App) -> tuple[str, str]:
    """A session whose last question was about the team plan; the question after it finds nothing."""
    await app.add_text("fees.md", FEES)
    first = await app.ask("What does the team plan cost?")
    return first.session_id, "Hmm, wieviel?"


def stages(turn: Any) -> list[str]:
    return [status["stage"] for status in turn.statuses]


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_a_follow_up_without_hits_is_rewritten_and_finds_its_passage(tmp_path: Path) -> None:
    """Discriminates: no second search; a search with the rewritten question that drops its hits."""
    async with open_app(settings(tmp_path, REWRITTEN)) as app:
        session, question = await follow_up(app)
        turn = await app.ask(question, session_id=session)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
        prompt = (await app.client.get(f"/turns/{turn.finished['turn_id']}/prompt")).json()
    assert stages(turn)[:6] == [
        "retrieving", "reranking", "rewriting", "rewriting", "reranking", "filtering",
    ]  # fmt: skip
    assert [status.get("question") for status in turn.statuses if status["stage"] == "rewriting"] == [
        None,
        REWRITTEN,
    ]
    assert turn.sources[0]["file_name"] == "fees.md"
    assert stored["question"] == question
    assert turn.finished["timings_ms"]["rewrite"] >= turn.finished["timings_ms"]["retrieve"]
    assert [part["reason"] for part in prompt["parts"] if part["part"] == "question"] == [
        "always",
        "rewritten_for_search",
    ]
    assert REWRITTEN not in json.dumps(prompt)  # words of another turn, which may be erased one day


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_question_with_enough_hits_is_not_rewritten(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, REWRITTEN, rerank_score_threshold=0.0)) as app:
        session, question = await follow_up(app)
        assert "rewriting" not in stages(await app.ask(question, session_id=session))


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_neither_a_first_question_nor_one_to_an_empty_store_is_rewritten(
    tmp_path: Path,
) -> None:
    async with open_app(settings(tmp_path, REWRITTEN, record_as="rewrite-none")) as app:
        first = await app.ask("Hmm, wieviel?")
        again = await app.ask("Hmm, wieviel?", session_id=first.session_id)
        assert "rewriting" not in [*stages(first), *stages(again)]
        await app.add_text("fees.md", FEES)
        assert "rewriting" not in stages(await app.ask("Hmm, wieviel?"))
    assert len(RECORDED["rewrite-none"]) == 3


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_rewriting_can_be_switched_off(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, REWRITTEN, rewrite_timeout_s=0)) as app:
        session, question = await follow_up(app)
        assert "rewriting" not in stages(await app.ask(question, session_id=session))


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_model_that_cannot_rewrite_in_time_costs_its_limit_but_not_the_turn(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, 60.0, rewrite_timeout_s=0.2)) as app:
        session, question = await follow_up(app)
        began = time.perf_counter()
        turn = await app.ask(question, session_id=session)
    assert time.perf_counter() - began < 5
    assert stages(turn)[-4:] == ["rewriting", "filtering", "generating", "finished"]
    assert (turn.answer, turn.finished["status"]) == ("Fine.", "completed")


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_stop_while_the_question_is_rewritten_stops_the_turn(tmp_path: Path) -> None:
    calls = RECORDED.setdefault("stopped", [])
    async with open_app(settings(tmp_path, 60.0, record_as="stopped", rewrite_timeout_s=60)) as app:
        session, question = await follow_up(app)
        before = len(calls)
        turn_id = str(uuid.uuid4())
        asked = asyncio.create_task(app.ask(question, session_id=session, turn_id=turn_id))
        await until(lambda: len(calls) > before)
        await app.client.post(f"/turns/{turn_id}/stop")
        turn = await asyncio.wait_for(asked, 20)  # rather than the sixty seconds of the model
    assert (turn.answer, turn.finished["status"]) == ("", "cancelled")
