"""Small talk and requests about an answer are not searched: with a model, and without one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted

UNWRITTEN = "请问你到底是人还是电脑程序呀"
HANDBOOK = "# 休假\n\n年假每年十五天。\n\n# 报销\n\n住宿每晚不超过四百元。\n"


async def test_small_talk_is_answered_without_a_search(app: App) -> None:
    """Discriminates: answering a greeting with the nearest passage."""
    await app.add_text("handbook.md", HANDBOOK)
    for text in ("你好", "hi there!", "谢谢", "who are you?", "37*12 等于多少"):
        turn = await app.ask(text)
        assert turn.finished["status"] == "completed"
        assert [status["stage"] for status in turn.statuses] == ["filtering", "finished"]
        assert (turn.sources, "[1]" in turn.answer, "十五天" in turn.answer) == ([], False, False)


async def test_an_introduction_is_answered_without_a_search_unless_it_follows_a_question(app: App) -> None:
    """Discriminates: "the documents contain nothing that answers this" to "my name is Alex"; ignoring what
    the answer to the last question depends on."""
    await app.add_text("handbook.md", HANDBOOK)
    named = await app.ask("你好，我叫小王")
    assert [status["stage"] for status in named.statuses] == ["filtering", "finished"]
    assert named.answer == "好的，知道了。有问题请直接问。"
    about = await app.ask("年假有几天？", session_id=named.session_id)
    depends = await app.ask("我是财务部的", session_id=named.session_id)
    assert about.sources
    assert "retrieving" in [status["stage"] for status in depends.statuses]


async def test_the_date_is_known_with_and_without_a_model(tmp_path: Path) -> None:
    """Discriminates: the server's zone instead of TIMEZONE; a date missing in the prompt, or present although
    switched off."""
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


async def test_requests_about_the_last_answer_are_answered_without_a_model(app: App) -> None:
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


LEAVE = (
    "# 请假\n\n## 年假\n\n年假每年十五天，提前三天申请。\n\n## 事假\n\n事假不带薪，由直属主管批准。\n\n"
    "# Leave\n\n## Annual leave\n\nAnnual leave is fifteen days a year.\n\n"
    "## Sick leave\n\nSick leave needs a note from the third day on.\n"
)


async def test_an_objection_is_answered_with_what_the_documents_say(app: App) -> None:
    """Discriminates: the assistant's introduction; names of documents without their content."""
    await app.add_text("handbook.md", HANDBOOK)
    first = await app.ask("年假有几天？")
    quote = "- handbook.md · 休假\n  > 年假每年十五天。"
    for doubts, beginning in (
        (("真的吗", "你确定吗？", "你肯定？"), "我只照文档回答，不作判断。文档里是这样写的："),
        (("真係？", "你確定嗎"), "我只照文檔回答，不作判斷。文檔裡是這樣寫的："),
        (("你从哪看的", "谁说的"), "上一个回答引用了："),
        (("你從哪裡看到的", "你喺邊度睇到㗎"), "上一個回答引用了："),
        (
            ("are you sure?", "prove it"),
            "I answer only from the documents and make no judgements. This is what they say:",
        ),
        (("where did you get that?", "says who?"), "The last answer quotes:"),
    ):
        parent = first.finished["turn_id"]
        for doubt in doubts:
            turn = await app.ask(doubt, session_id=first.session_id, parent_turn_id=parent)
            assert turn.answer == f"{beginning}\n\n{quote}", doubt
            parent = turn.finished["turn_id"]
    assert (await app.ask("真的吗")).answer == "这个会话里还没有问答。"


async def test_a_model_receives_an_objection_with_the_history(tmp_path: Path) -> None:
    llms = {"default": scripted("年假十五天 [1]。", record_as="objection")}
    async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        first = await app.ask("年假有几天？")
        turn = await app.ask("真係？", session_id=first.session_id)
        sent = [text for _, text in RECORDED["objection"][-1]]
    assert "retrieving" not in [status["stage"] for status in turn.statuses]
    assert sent[-1] == "真係？"
    assert any("年假十五天" in text for text in sent[:-1])


async def test_what_a_correction_denies_is_ignored(tmp_path: Path) -> None:
    """Discriminates: a search for both, which quotes the denied part."""
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("leave.md", LEAVE)
        for question, correction, expected, denied in (
            ("年假怎么请？", "不是年假，是事假", "事假不带薪", "十五天"),
            ("年假怎么请？", "我说的是事假，不是年假", "事假不带薪", "十五天"),
            ("年假怎麼請？", "唔係年假，係事假", "事假不带薪", "十五天"),
            ("Tell me about annual leave", "not annual leave, sick leave", "a note", "fifteen"),
            ("Tell me about annual leave", "I meant sick leave, not annual leave", "a note", "fifteen"),
        ):
            first = await app.ask(question)
            assert denied in first.answer
            turn = await app.ask(correction, session_id=first.session_id)
            assert expected in turn.answer, correction
            assert denied not in turn.answer, correction


async def test_of_many_questions_the_answer_says_how_many_are_left_out(app: App) -> None:
    """Discriminates: the first and the last answered as if they were all."""
    parent = await app.ask("第一个问题是什么来着呢")
    for number in range(2, 11):
        await app.ask(f"第 {number} 种打印纸放在哪里", session_id=parent.session_id)
    chinese = (await app.ask("列出我问过的问题", session_id=parent.session_id)).answer.splitlines()
    shown = [line for line in chinese if line.startswith("- 第")]
    assert chinese[2] == f"- ……（中间还有 {10 - len(shown)} 个）"
    assert len(chinese) == len(shown) + 2 < 11
    english = (await app.ask("what did I ask?", session_id=parent.session_id)).answer
    assert "more in between)" in english
    few = await app.ask("年假有几天？")
    assert "中间" not in (await app.ask("我刚才问了什么？", session_id=few.session_id)).answer


async def test_a_question_is_searched_unless_the_request_decides_otherwise(app: App) -> None:
    await app.add_text("handbook.md", HANDBOOK)
    assert (await app.ask("谢谢，年假有几天？")).sources
    assert (await app.ask("年假有几天？", knowledge="never")).sources == []
    always = await app.ask("你好", knowledge="always")
    assert "retrieving" in [status["stage"] for status in always.statuses]


async def test_a_model_receives_the_conversation_and_no_mention_of_an_empty_search(tmp_path: Path) -> None:
    """Discriminates: telling the model that nothing was found, which it then repeats in reply to a
    thank-you."""
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


async def test_who_sees_the_questions_is_answered_by_a_sentence_and_by_the_prompt(tmp_path: Path) -> None:
    """Discriminates: an assistant that introduces itself instead, and a model that has to guess."""
    llms = {"default": {"provider": "extractive"}, "other": scripted("fine", record_as="private")}
    async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
        chinese = await app.ask("同事能看到我的问题吗？")
        english = await app.ask("Do you store my chats?")
        await app.ask("Do you store my chats?", model_id="other")
    assert "用同一个密钥的人也看得到" in chinese.answer
    assert "stored on this server until they expire" in english.answer
    assert "stored on this server until it expires" in RECORDED["private"][-1][0][1]


async def test_talk_that_matches_a_phrase_needs_no_embedding(app: App) -> None:
    """Discriminates: embedding before the phrases are checked."""
    await app.add_text("handbook.md", HANDBOOK)
    await app.container.embedding.close()
    assert (await app.ask("你好")).finished["status"] == "completed"
    assert (await app.ask("年假有几天？")).finished["status"] == "failed"


async def test_a_request_about_an_answer_is_searched_if_there_is_no_answer(app: App) -> None:
    """Discriminates: a keyword such as 来源 or summary that is taken for a request."""
    await app.add_text("handbook.md", HANDBOOK)
    for text in ("翻译成英文", "sources", "总结一下"):
        stages = [status["stage"] for status in (await app.ask(text)).statuses]
        assert "retrieving" in stages


async def test_a_language_after_a_question_about_languages_is_searched(app: App) -> None:
    """Discriminates: "and in English?" taken for a request to translate, whatever the question before."""
    await app.add_text("tours.md", "# Tours\n\nA tour in Chinese costs 150, in English 280.\n")
    for question, stage in (("How much is a tour in Chinese?", True), ("How much is a tour?", False)):
        first = await app.ask(question)
        turn = await app.ask("And in English?", session_id=first.session_id)
        assert ("retrieving" in [status["stage"] for status in turn.statuses]) is stage


async def test_the_setting_decides_if_the_request_does_not(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path / "never", retrieval={"knowledge": "never"})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        assert (await app.ask("年假有几天？")).sources == []
        assert (await app.ask("年假有几天？", knowledge="always")).sources
    async with open_app(make_settings(tmp_path / "always", retrieval={"knowledge": "always"})) as app:
        stages = [status["stage"] for status in (await app.ask("你好")).statuses]
        assert "retrieving" in stages


async def test_talk_that_no_phrase_matches_is_recognized_by_its_vector(tmp_path: Path) -> None:
    """Discriminates: only phrases; and a request about an answer although there is none."""
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        first = await app.ask("年假有几天？")
        assert first.sources
        turn = await app.ask(UNWRITTEN)
        assert [status["stage"] for status in turn.statuses] == ["filtering", "finished"]
        assert (await app.ask("请假要提前几天申请？")).statuses[0]["stage"] == "retrieving"


async def test_what_sounds_like_talk_but_is_answered_by_a_passage_is_a_question(tmp_path: Path) -> None:
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


async def test_a_single_word_after_a_question_about_something_else_is_about_that_word(tmp_path: Path) -> None:
    """Discriminates: a word that leans so much on the previous question that its passage comes first
    again."""
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


async def test_thanks_between_a_question_and_its_follow_up_change_nothing(app: App) -> None:
    """Discriminates: joining the follow-up with "thanks", which leaves it without a subject; repeating
    "you're welcome"."""
    await app.add_text("rules.md", f"{LEAVE}\n# 报销\n\n## 住宿\n\n住宿每晚不超过四百元，由财务主管批准。\n")
    first = await app.ask("事假怎么请？")
    session = {"session_id": first.session_id}
    for thanks in ("谢谢", "好的，谢谢啦"):
        await app.ask(thanks, **session)
    assert (await app.ask("再说一遍", **session)).answer.startswith("资料中的相关内容：\n\n> **事假**")
    answer = (await app.ask("谁批？", **session)).answer
    assert "事假不带薪" in answer
    assert "财务主管" not in answer
