"""A conversation through the real application, to the store and back."""

from __future__ import annotations

import math
import re
import uuid
from pathlib import Path

import pytest

from tests.support.models.scripted_llm import RECORDED
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import App, make_settings, open_app, scripted

GUIDE = """# 父子链
## 什么是父子链
父子链由每一轮的 parent_turn_id 连接而成,从当前一轮一直到会话的第一轮。
## 旧对话的清理
超过三十天的对话会在每天凌晨三点被删除。
# Models
## How to change the model
Set OPENAI_BASE_URL and LLM_MODEL to change the model that answers.
"""


async def test_an_answer_streams_in_the_order_of_the_protocol_and_cites_its_source(app: App) -> None:
    await app.add_text("guide.md", GUIDE)
    turn = await app.ask("什么是父子链?")
    assert turn.kinds[0] == "SESSION"
    assert turn.kinds[-3:] == ["SOURCE", "STATUS", "DONE"]
    assert [status["stage"] for status in turn.statuses] == [
        "retrieving", "reranking", "filtering", "generating", "finished",
    ]  # fmt: skip
    assert turn.finished["status"] == "completed"
    assert "parent_turn_id" in turn.answer
    assert "[1]" in turn.answer
    assert turn.sources[0]["file_name"] == "guide.md"
    assert turn.sources[0]["cited"] is True
    assert turn.sources[0]["key_passage"] in turn.sources[0]["text"]


async def test_the_second_turn_is_the_child_of_the_first_and_both_are_stored(app: App) -> None:
    first = await app.ask("What is this?")
    second = await app.ask("And then?", session_id=first.session_id)
    assert second.finished["parent_turn_id"] == first.finished["turn_id"]
    assert first.finished["parent_turn_id"] is None
    turns = (await app.client.get(f"/sessions/{first.session_id}/turns")).json()["turns"]
    assert [turn["turn_id"] for turn in turns] == [first.finished["turn_id"], second.finished["turn_id"]]
    assert turns[0]["answer"] == first.answer
    assert turns[0]["sources"] == first.sources


async def test_a_turn_is_stored_with_the_eight_fields_that_others_use(app: App) -> None:
    await app.add_text("handbook.md", "# Fees\n\nThe annual fee is 300.")
    turn = await app.ask("What is the annual fee?")
    records = await app.container.store.retrieve("conversations", [turn.finished["turn_id"]])
    payload = records[0].payload or {}
    known = {"session_id", "user_query", "assistant_response", "timestamp", "context_docs", "token_count"}
    assert known | {"turn_id", "parent_turn_id"} <= payload.keys()
    assert payload["user_query"] == "What is the annual fee?"
    assert payload["context_docs"] == ["handbook.md"]
    assert payload["sources"][0]["chunk_id"]
    assert payload["timestamp"].endswith("Z")


async def test_the_model_receives_system_relevant_recent_knowledge_question(tmp_path: Path) -> None:
    model = scripted("fine", record_as="order")
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": model}},
        conversation={"max_recent_turns": 1, "relevant_turn_threshold": 0.0},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        await app.add_text("guide.md", GUIDE)
        first = await app.ask("Which parrot did we talk about?")
        await app.ask("Unrelated matter?", session_id=first.session_id)
        await app.ask("Which parrot again?", session_id=first.session_id)
    prompt = RECORDED["order"][-1]
    contents = [content for _, content in prompt]
    assert [role for role, _ in prompt] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert contents[1] == "Which parrot did we talk about?"
    assert contents[3] == "Unrelated matter?"
    assert re.search(r'^<passage-[0-9a-f]{6} id="1"', contents[5], re.M)
    assert contents[5].endswith("\n\nWhich parrot again?")


async def test_an_empty_search_is_stated_plainly_and_cites_nothing(app: App) -> None:
    turn = await app.ask("What is the capital of Atlantis?")
    assert turn.sources == []
    assert "nothing" in turn.answer
    assert any("Nothing relevant" in status["message"] for status in turn.statuses)


async def test_thinking_is_split_from_the_answer_and_stored_separately(tmp_path: Path) -> None:
    model = scripted("<thi", "nk>hm\nso", "</th", "ink>\n\nForty", "-two\nDONE: said it")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        turn = await app.ask("Why?", thinking=True)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    assert turn.text("THINK") == "hm\nso"
    assert turn.answer == "Forty-two\nDONE: said it"
    assert (stored["thinking"], stored["answer"]) == (turn.text("THINK"), turn.answer)


async def test_an_unreachable_model_ends_in_error_and_the_question_is_kept(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("!")}})) as app:
        turn = await app.ask("Are you there?")
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    assert turn.kinds[-3:] == ["ERROR", "STATUS", "DONE"]
    error = next(status for status in turn.statuses if status["stage"] == "error")
    assert (error["code"], error["retryable"]) == ("llm_unavailable", True)
    assert (stored["status"], stored["question"]) == ("failed", "Are you there?")


async def test_a_partial_answer_before_a_failure_is_kept_as_failed(tmp_path: Path) -> None:
    async with open_app(
        make_settings(tmp_path, models={"llms": {"default": scripted("half an", "!")}})
    ) as app:
        turn = await app.ask("Tell me.")
    assert turn.answer == "half an"
    assert turn.kinds[-4:] == ["SOURCE", "ERROR", "STATUS", "DONE"]
    assert turn.finished["status"] == "failed"


@pytest.mark.parametrize(("words", "repeated"), [(("half an",), ["Tell me.", "half an"]), ((), [])])
async def test_a_question_after_a_failed_turn_shows_the_model_its_partial_answer(
    tmp_path: Path, words: tuple[str, ...], repeated: list[str]
) -> None:
    """Discriminates: a broken answer left out, so that the model is to continue something that it does not
    see; a question sent along without any of its answer."""
    model = scripted(*words, "!", record_as="broken")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        failed = await app.ask("Tell me.")
        place = {"session_id": failed.session_id, "parent_turn_id": failed.finished["turn_id"]}
        await app.ask("Please go on.", **place)
        assert [content for _, content in RECORDED["broken"][-1]][1:-1] == repeated
        app.container.conversations.turns.forget_trees()
        await app.ask("Please go on.", **place)
    assert [content for _, content in RECORDED["broken"][-1]][1:-1] == repeated


async def test_the_same_request_again_is_replayed_without_the_model(tmp_path: Path) -> None:
    model = scripted("once", record_as="retry")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        turn_id = str(uuid.uuid4())
        first = await app.ask("Say it.", turn_id=turn_id)
        again = await app.ask("Say it.", turn_id=turn_id)
        other = await app.client.post(
            "/knowledge_chat_conversation", json={"question": "Something else.", "turn_id": turn_id}
        )
    assert (first.answer, again.answer) == ("once", "once")
    assert again.finished["turn_id"] == first.finished["turn_id"] == turn_id
    assert len(RECORDED["retry"]) == 1
    assert (other.status_code, other.json()["error"]["code"]) == (409, "turn_conflict")


async def test_a_failed_turn_runs_again_under_its_own_id(tmp_path: Path) -> None:
    turn_id = str(uuid.uuid4())
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("!")}})) as app:
        failed = await app.ask("Try.", turn_id=turn_id)
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("done")}})) as app:
        again = await app.ask("Try.", turn_id=turn_id)
        turns = (await app.client.get(f"/sessions/{failed.session_id}/turns")).json()["turns"]
    assert again.answer == "done"
    assert [(turn["turn_id"], turn["status"]) for turn in turns] == [(turn_id, "completed")]


async def test_without_streaming_one_object_has_the_same_parts(app: App) -> None:
    await app.add_text("guide.md", GUIDE)
    response = await app.client.post(
        "/knowledge_chat_conversation", json={"question": "什么是父子链?", "stream": False}
    )
    body = response.json()
    assert body["status"] == "completed"
    assert body["sources"][0]["file_name"] == "guide.md"
    stored = (await app.client.get(f"/turns/{body['turn_id']}")).json()
    assert stored["answer"] == body["answer"]


async def test_use_chat_mode_false_sends_one_flat_prompt(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("flat answer", record_as="flat")}},
        conversation={"use_chat_mode": False},
    )
    async with open_app(settings) as app:
        turn = await app.ask("A question?")
    assert turn.answer == "flat answer"
    ((role, prompt),) = RECORDED["flat"][-1]
    assert role == "prompt"
    assert "A question?" in prompt


async def test_insert_block_keeps_what_the_judge_finds_useful_and_says_why(tmp_path: Path) -> None:
    judge = scripted('{"can_answer": true, "passage": "OPENAI_BASE_URL", "reason": "names the setting"}')
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("ok"), "judge": judge}},
        retrieval={"rerank_score_threshold": 0.0},
    )
    async with open_app(settings) as app:
        await app.add_text("guide.md", "# Models\nSet OPENAI_BASE_URL to change the model.")
        turn = await app.ask("How to change the model?", use_insert_block=True, insert_block_llm_id="judge")
    assert turn.sources[0]["reason"] == "names the setting"
    assert turn.sources[0]["key_passage"] == "OPENAI_BASE_URL"


async def test_an_answer_whose_token_count_is_not_a_number_is_kept(tmp_path: Path) -> None:
    """Discriminates: NaN in a payload, which no store accepts: the turn would never end."""
    with running_stub(StubLLM(usage={"prompt_tokens": 3, "total_tokens": math.nan})) as stub:
        table = {"provider": "openai", "base_url": stub.url, "api_key": "k", "model": "stub"}
        async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
            turn = await app.ask("A question?")
            stored = await app.container.store.scroll("conversations")
    assert (turn.answer, turn.finished["status"]) == ("one two three", "completed")
    ((record,), _) = stored
    assert (record.payload or {})["prompt"]["response"]["usage"] == {"prompt_tokens": 3, "total_tokens": None}
