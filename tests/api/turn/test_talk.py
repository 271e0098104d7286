"""What is no question to the documents is not searched for: with a model, and without one."""

from __future__ import annotations

from pathlib import Path

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted

HANDBOOK = "# 休假\n\n年假每年十五天。\n\n# 报销\n\n住宿每晚不超过四百元。\n"


async def test_small_talk_is_answered_without_a_search(app: App) -> None:
    """Discriminates: quoting the nearest passage to a greeting."""
    await app.add_text("handbook.md", HANDBOOK)
    for text in ("你好", "hi there!", "谢谢", "who are you?", "37*12 等于多少"):
        turn = await app.ask(text)
        assert turn.finished["status"] == "completed"
        assert [status["stage"] for status in turn.statuses] == ["filtering", "finished"]
        assert (turn.sources, "[1]" in turn.answer, "十五天" in turn.answer) == ([], False, False)


async def test_requests_about_the_last_answer_are_met_without_a_model(app: App) -> None:
    await app.add_text("handbook.md", HANDBOOK)
    first = await app.ask("年假有几天？")
    assert first.sources
    session = {"session_id": first.session_id}
    assert "handbook.md" in (await app.ask("这个答案的出处是哪里？", **session)).answer
    shorter = await app.ask("短一点", **session, parent_turn_id=first.finished["turn_id"])
    assert shorter.answer == "> 年假每年十五天。\n\nhandbook.md"
    assert "年假有几天？" in (await app.ask("我刚才问了什么？", **session)).answer
    assert (await app.ask("再说一遍")).answer == "这个会话里还没有问答。"


async def test_a_question_is_searched_and_the_request_decides_otherwise(app: App) -> None:
    await app.add_text("handbook.md", HANDBOOK)
    assert (await app.ask("谢谢，年假有几天？")).sources
    assert (await app.ask("年假有几天？", knowledge="never")).sources == []
    always = await app.ask("你好", knowledge="always")
    assert "retrieving" in [status["stage"] for status in always.statuses]


async def test_a_model_gets_the_conversation_and_no_word_of_an_empty_search(tmp_path: Path) -> None:
    """Discriminates: telling the model that nothing was found, which it then says to a thank-you."""
    llms = {"default": scripted("年假十五天 [1]。", record_as="unsearched")}
    async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        first = await app.ask("年假有几天？")
        await app.ask("翻译成英文", session_id=first.session_id)
        sent = "\n".join(text for _, text in RECORDED["unsearched"][-1])
    assert "年假十五天" in sent
    assert "没有检索文档" in sent
    assert "没有找到与这个问题相关的资料" not in sent
    assert "<passage" not in sent
