"""What is no question to the documents is not searched for: with a model, and without one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted

UNWRITTEN = "请问你到底是人还是电脑程序呀"
HANDBOOK = "# 休假\n\n年假每年十五天。\n\n# 报销\n\n住宿每晚不超过四百元。\n"


async def test_small_talk_is_answered_without_a_search(app: App) -> None:
    """Discriminates: quoting the nearest passage to a greeting."""
    await app.add_text("handbook.md", HANDBOOK)
    for text in ("你好", "hi there!", "谢谢", "who are you?", "37*12 等于多少"):
        turn = await app.ask(text)
        assert turn.finished["status"] == "completed"
        assert [status["stage"] for status in turn.statuses] == ["filtering", "finished"]
        assert (turn.sources, "[1]" in turn.answer, "十五天" in turn.answer) == ([], False, False)


async def test_the_day_is_known_with_a_model_and_without(tmp_path: Path) -> None:
    """Discriminates: the server's zone for TIMEZONE; a day that the prompt is not told, or told when off."""
    zone = {"timezone": "Pacific/Kiritimati"}
    today = datetime.now(ZoneInfo(zone["timezone"]))
    weekday = "一二三四五六日"[today.weekday()]
    llms = {"default": {"provider": "extractive"}, "other": scripted("fine", record_as="day")}
    async with open_app(make_settings(tmp_path, models={"llms": llms}, conversation=zone)) as app:
        turn = await app.ask("今天几号？")
        assert turn.answer.startswith(f"今天是 {today:%Y-%m-%d}，星期{weekday}，现在是 ")
        await app.ask("年假有几天？", session_id=turn.session_id, model_id="other")
    system = RECORDED["day"][-1][0][1]
    assert f"\n\n今天是 {today:%Y-%m-%d}，星期{weekday}。本次会话开始于 {today:%Y-%m-%d} " in system
    settings = make_settings(tmp_path / "off", models={"llms": llms}, conversation={"context_lines": False})
    async with open_app(settings) as app:
        await app.ask("What is this?", model_id="other")
    assert "Today is" not in RECORDED["day"][-1][0][1]


async def test_requests_about_the_last_answer_are_met_without_a_model(app: App) -> None:
    await app.add_text("handbook.md", HANDBOOK)
    first = await app.ask("年假有几天？")
    assert first.sources
    session = {"session_id": first.session_id}
    assert "handbook.md" in (await app.ask("这个答案的出处是哪里？", **session)).answer
    shorter = await app.ask("短一点", **session, parent_turn_id=first.finished["turn_id"])
    assert shorter.answer == "> **休假**\n> 年假每年十五天。\n\nhandbook.md"
    assert "handbook.md" in (await app.ask("出处呢？", **session)).answer
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


async def test_who_sees_what_is_asked_is_told_by_a_sentence_and_by_the_prompt(tmp_path: Path) -> None:
    """Discriminates: an assistant that introduces itself instead, and a model that has to guess."""
    llms = {"default": {"provider": "extractive"}, "other": scripted("fine", record_as="private")}
    async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
        chinese = await app.ask("同事能看到我的问题吗？")
        english = await app.ask("Do you store my chats?")
        await app.ask("Do you store my chats?", model_id="other")
    assert "用同一个密钥的人也看得到" in chinese.answer
    assert "stored on this server until they expire" in english.answer
    assert "stored on this server until it expires" in RECORDED["private"][-1][0][1]


async def test_talk_that_a_phrase_knows_needs_no_embedding(app: App) -> None:
    """Discriminates: embedding before the phrases are looked at."""
    await app.add_text("handbook.md", HANDBOOK)
    await app.container.embedding.close()
    assert (await app.ask("你好")).finished["status"] == "completed"
    assert (await app.ask("年假有几天？")).finished["status"] == "failed"


async def test_what_to_do_with_an_answer_is_searched_where_there_is_none(app: App) -> None:
    """Discriminates: a keyword such as 来源 or summary that is taken for a request."""
    await app.add_text("handbook.md", HANDBOOK)
    for text in ("翻译成英文", "sources", "总结一下"):
        stages = [status["stage"] for status in (await app.ask(text)).statuses]
        assert "retrieving" in stages


async def test_a_language_after_a_question_about_languages_is_searched(app: App) -> None:
    """Discriminates: "and in English?" for a request to translate, whatever was asked before."""
    await app.add_text("tours.md", "# Tours\n\nA tour in Chinese costs 150, in English 280.\n")
    for question, stage in (("How much is a tour in Chinese?", True), ("How much is a tour?", False)):
        first = await app.ask(question)
        turn = await app.ask("And in English?", session_id=first.session_id)
        assert ("retrieving" in [status["stage"] for status in turn.statuses]) is stage


async def test_the_setting_decides_where_the_request_does_not(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path / "never", retrieval={"knowledge": "never"})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        assert (await app.ask("年假有几天？")).sources == []
        assert (await app.ask("年假有几天？", knowledge="always")).sources
    async with open_app(make_settings(tmp_path / "always", retrieval={"knowledge": "always"})) as app:
        stages = [status["stage"] for status in (await app.ask("你好")).statuses]
        assert "retrieving" in stages


async def test_talk_that_no_phrase_knows_is_known_by_its_vector(tmp_path: Path) -> None:
    """Discriminates: phrases alone; and a request about an answer where there is none."""
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        first = await app.ask("年假有几天？")
        assert first.sources
        turn = await app.ask(UNWRITTEN)
        assert [status["stage"] for status in turn.statuses] == ["filtering", "finished"]
        assert (await app.ask("请假要提前几天申请？")).statuses[0]["stage"] == "retrieving"


async def test_what_sounds_like_talk_and_is_answered_by_a_passage_is_a_question(tmp_path: Path) -> None:
    """Discriminates: the vector alone, by which the assistant introduces itself."""
    office = (
        "# 差旅\n\n## 高铁\n\n高铁坐二等座，实报实销；经理以上可以坐一等座。\n\n## 打车报销\n\n"
        "加班到晚上九点以后打车可以报销，单次不超过一百元。\n\n# 食堂\n\n早餐七点半到九点。\n"
    )
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("handbook.md", office)
        for question, said in (("我能坐一等座吗", "一等座"), ("打车能报吗 我昨天加班到十点", "不超过一百元")):
            turn = await app.ask(question)
            assert turn.statuses[0]["stage"] == "retrieving", question
            assert said in turn.answer
        for talk in ("太长了吧你这个", UNWRITTEN):
            assert (await app.ask(talk)).sources == [], talk


async def test_one_word_after_a_question_about_something_else_is_about_that_word(tmp_path: Path) -> None:
    """Discriminates: a word that leans so far on the question before that its passage comes first again."""
    handbook = (
        "# 年假\n\n入职满一年有年假五天，满十年有十天，当年休完。\n\n# 打印机\n\n打印机在三楼前台右边，"
        "先装驱动，密码找行政。\n\n# 食堂\n\n食堂在一楼，中午十一点半开门。\n"
    )
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("handbook.md", handbook)
        for word in ("打印机", "食堂呢"):
            first = await app.ask("年假几天")
            turn = await app.ask(word, session_id=first.session_id)
            assert turn.sources[0]["heading"] == word.rstrip("呢")
            assert word.rstrip("呢") in turn.answer
