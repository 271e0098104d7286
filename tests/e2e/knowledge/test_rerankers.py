"""Configured rerankers and the judge, through the real application."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from tests.services.adapters.http_stub import Reply, http_stub
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import make_settings, open_app, scripted

GUIDE = "# Models\nSet OPENAI_BASE_URL to change the model.\n"
QUESTION = "How to change the model?"
WARNING = "reranker_unavailable"


class BrokenReranker(BaseNodePostprocessor):
    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        raise RuntimeError("the model is gone")


def warnings(statuses: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["code"], each["message"]) for each in statuses if each["stage"] == "warning"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_when_a_rerank_server_dies_the_built_in_one_takes_over_and_a_warning_says_so(
    tmp_path: Path,
) -> None:
    """Discriminates: a fallback that only the log mentions; one that ends the turn."""
    with http_stub(Reply([{"index": 0, "score": 0.875}]), Reply({}, 503)) as stub:
        settings = make_settings(tmp_path, models={"reranker": "http", "reranker_url": stub.url})
        async with open_app(settings) as app:
            await app.add_text("guide.md", GUIDE)
            judged = await app.ask(QUESTION)
            fallen = await app.ask(QUESTION)
            chinese = await app.ask("怎么更换模型?", session_id=fallen.session_id)
    assert (judged.sources[0]["score"], warnings(judged.statuses)) == (0.875, [])
    assert fallen.finished["status"] == "completed"
    assert fallen.sources[0]["score"] not in (0.0, 0.875)
    assert warnings(fallen.statuses) == [
        (WARNING, "The reranker cannot be reached; the built-in one was used instead.")
    ]
    assert warnings(chinese.statuses) == [(WARNING, "重排服务暂时不可用，本轮改用内置的重排。")]
    assert stub.bodies[0]["query"] == QUESTION


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_failing_reranker_class_is_replaced_too(tmp_path: Path) -> None:
    path = "llama_index:tests.e2e.knowledge.test_rerankers:BrokenReranker"
    async with open_app(make_settings(tmp_path, models={"reranker": path})) as app:
        await app.add_text("guide.md", GUIDE)
        turn = await app.ask(QUESTION)
        hits = (await app.client.post("/search", json={"question": QUESTION})).json()
    assert [code for code, _ in warnings(turn.statuses)] == [WARNING]
    assert turn.sources
    assert hits["candidates"]


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_what_the_judge_refuses_is_neither_sent_nor_cited_and_the_prompt_says_why(
    tmp_path: Path,
) -> None:
    """Discriminates: showing all candidates when the judge refused every one."""
    judge = scripted("```json\n{'can_answer': 'no', 'reason': 'off topic',}\n```")
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok"), "judge": judge}},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        await app.add_text("guide.md", GUIDE)
        turn = await app.ask(QUESTION, use_insert_block=True, insert_block_llm_id="judge")
        prompt = (await app.client.get(f"/turns/{turn.finished['turn_id']}/prompt")).json()
    assert turn.sources == []
    filtering = next(status for status in turn.statuses if status["stage"] == "filtering")
    assert (filtering["used"], filtering["refused"]) == (0, 1)
    assert "Nothing relevant" in filtering["message"]
    assert [part["reason"] for part in prompt["parts"] if part["part"] == "knowledge"] == ["judged_useless"]


@pytest.mark.parametrize(
    ("reply", "reasons"),
    [
        ('{"can_answer": true, "passage": "OPENAI_BASE_URL", "reason": "names it"}', ["names it"]),
        ("Hard to say.", []),
    ],
)
async def test_what_the_judge_confirms_is_cited_even_below_the_threshold(
    tmp_path: Path, reply: str, reasons: list[str]
) -> None:
    """Discriminates: a judge that sees only what passed; a passage that a meaningless reply lets in."""
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok"), "judge": scripted(reply)}},
        retrieval={"rerank_score_threshold": 1.0},
    )
    async with open_app(settings) as app:
        await app.add_text("guide.md", GUIDE)
        turn = await app.ask(QUESTION, use_insert_block=True, insert_block_llm_id="judge")
    assert [source["reason"] for source in turn.sources] == reasons
    assert all(source["key_passage"] == "OPENAI_BASE_URL" for source in turn.sources)


class JudgingStub(StubLLM):
    """Approves the passage of the ducats, and answers the others unintelligibly."""

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        if body["model"] != "judge":
            return self.words
        passage = json.loads(body["messages"][-1]["content"])["passage"]
        return ('{"can_answer": true, "reason": "names it"}' if "ducats" in passage else "Hard to say.",)


async def test_every_raw_candidate_is_judged_and_the_answering_model_gets_the_approved_ones(
    tmp_path: Path,
) -> None:
    """Discriminates: a judge of `rerank_top_n`, or of what passed the threshold; a judge of more than
    configured."""
    with running_stub(JudgingStub()) as stub:
        table = {"provider": "openai", "base_url": stub.url, "api_key": "k"}
        llms = {"default": {**table, "model": "answers"}, "judge": {**table, "model": "judge"}}
        limits = {"rerank_score_threshold": 1.0, "reranker_input_top_n": 3}
        async with open_app(make_settings(tmp_path, models={"llms": llms}, retrieval=limits)) as app:
            await app.add_text("fee.md", "# Fee\nThe lighthouse fee is nine ducats.\n")
            for name in ("harbour", "mill", "bridge", "market"):
                await app.add_text(f"{name}.md", f"# {name}\nThe lighthouse fee is due at the {name}.\n")
            question = "What is the lighthouse fee in ducats?"
            judging = {"use_insert_block": True, "insert_block_llm_id": "judge", "rerank_top_n": 1}
            turn = await app.ask(question, **judging)
    *judged, answered = stub.bodies
    tasks = [json.loads(body["messages"][-1]["content"]) for body in judged]
    assert [(body["model"], task["question"]) for body, task in zip(judged, tasks, strict=True)] == [
        ("judge", question)
    ] * 3
    assert len({task["passage"] for task in tasks}) == 3
    sent = json.dumps(answered["messages"])
    assert (answered["model"], "nine ducats" in sent, "is due at" in sent) == ("answers", True, False)
    assert [(source["file_name"], source["reason"]) for source in turn.sources] == [("fee.md", "names it")]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_follow_up_is_judged_with_the_previous_questions(tmp_path: Path) -> None:
    from tests.support.models.scripted_llm import RECORDED

    judge = scripted('{"can_answer": true}', record_as="judge-follow-up")
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok"), "judge": judge}},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        await app.add_text("guide.md", GUIDE)
        first = await app.ask(QUESTION)
        await app.ask(
            "And its default?",
            session_id=first.session_id,
            use_insert_block=True,
            insert_block_llm_id="judge",
        )
    prompt = json.loads(RECORDED["judge-follow-up"][-1][-1][1])
    assert (prompt["earlier_questions"], prompt["question"]) == ([QUESTION], "And its default?")
