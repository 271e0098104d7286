"""A turn whose question has no words of any language takes the language of the conversation."""

from __future__ import annotations

from pathlib import Path

import opencc
import pytest

from api import messages
from core.text import in_script_of
from services.models import extractive
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted

HANDBOOK = (
    "# 远程办公\n\nwfh 每周最多两天，先在系统里申请。\n\n# VPN\n\nVPN 用工号登录，连不上请找信息部。\n\n"
    "# Parental leave\n\nParental leave is ten days for each parent.\n"
)
WORDLESS = ("？", "1", "ok", "VPN", "wfh呢")


def _is_chinese(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)


async def _follow_up(app: App, question: str, first: str) -> tuple[str, list[str]]:
    """How the answer begins, and the sentences of the stages."""
    session_id = (await app.ask(first)).session_id
    turn = await app.ask(question, session_id=session_id)
    return turn.answer.split("\n")[0], [status["message"] for status in turn.statuses]


async def test_a_question_without_words_is_answered_in_the_conversations_language(app: App) -> None:
    """Discriminates: English for whatever is not Chinese: in the stages, in small talk and in quotes."""
    await app.add_text("handbook.md", HANDBOOK)
    for question in WORDLESS:
        beginning, sentences = await _follow_up(app, question, "远程办公每周几天？")
        assert all(map(_is_chinese, (beginning, *sentences))), question
        beginning, sentences = await _follow_up(app, question, "How long is parental leave?")
        languages = {_is_chinese(each) for each in (beginning, *sentences)}
        assert languages == {question == "wfh呢"}, question


async def test_a_plain_question_is_answered_in_its_own_language(app: App) -> None:
    await app.add_text("handbook.md", HANDBOOK)
    beginning, sentences = await _follow_up(app, "what about parental leave?", "远程办公每周几天？")
    assert not any(map(_is_chinese, (beginning, *sentences)))
    beginning, sentences = await _follow_up(app, "那 MacBook Pro 呢", "How long is parental leave?")
    assert all(map(_is_chinese, (beginning, *sentences)))


async def test_the_language_of_a_first_question_without_words_is_the_readers_or_the_documents(
    app: App,
) -> None:
    await app.add_text("vpn.md", "# VPN\n\nVPN 用工号登录，连不上请找信息部。\n")
    assert _is_chinese((await app.ask("VPN")).answer.split("\n")[0])
    app.client.headers["Accept-Language"] = "en-GB,en;q=0.8"
    assert not _is_chinese((await app.ask("VPN")).answer.split("\n")[0])


async def test_the_fixed_block_of_a_prompt_stays_in_the_conversations_language(tmp_path: Path) -> None:
    """Discriminates: a prompt whose beginning changes with a question of no language."""
    llms = {"default": scripted("好的。", record_as="block")}
    async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
        await app.add_text("handbook.md", HANDBOOK)
        for question in WORDLESS:
            first = await app.ask("远程办公每周几天？", knowledge="never")
            await app.ask(question, session_id=first.session_id, knowledge="never")
            before, after = (RECORDED["block"][at][0][1] for at in (-2, -1))
            assert before == after, question


async def test_a_follow_up_in_traditional_characters_is_answered_from_simplified_documents(
    tmp_path: Path,
) -> None:
    """Discriminates: 高鐵 too far from 高铁, so that the only passage about it is refused."""
    text = "# 请假\n\n## 年假\n\n年假每年十五天。\n\n# 差旅\n\n## 高铁\n\n高铁坐二等座，实报实销。\n"
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("handbook.md", text)
        await app.add_text("leave.md", "# Leave\n\n## Annual leave\n\nAnnual leave is fifteen days a year.\n")
        first = await app.ask("年假有幾天")
        turn = await app.ask("那高鐵呢", session_id=first.session_id)
        assert "二等座" in turn.answer


async def test_the_servers_own_sentences_are_in_the_readers_characters(app: App) -> None:
    """Discriminates: simplified sentences for everyone; quotes in other characters than the document's."""
    await app.add_text("handbook.md", "# 年假\n\n年假每年十五天，向主管申请。\n")
    turn = await app.ask("年假有幾天？")
    assert turn.answer.startswith(("資料中的相關內容：", "最接近的內容："))
    assert "向主管申请" in turn.answer
    assert turn.statuses[0]["message"].startswith("正在進行混合檢索")
    doubt = await app.ask("真係？", session_id=turn.session_id)
    assert "文檔裡是這樣寫的" in doubt.answer
    assert "向主管申请" in doubt.answer
    assert "沒有找到" in (await app.ask("火箭發動機的推力")).answer
    assert (await app.ask("年假有几天？")).answer.startswith(("资料中的相关内容：", "最接近的内容："))


def test_our_sentences_in_traditional_characters_match_opencc() -> None:
    """Except texts that do not occur in a turn."""
    convert = opencc.OpenCC("s2tw").convert
    sentences = [chinese for key, (chinese, _) in messages._TEXTS.items() if not key.startswith("why_")]
    sentences += [each[True] for each in vars(extractive).values() if isinstance(each, dict) and True in each]
    assert len(sentences) > 60
    for sentence in sentences:
        assert in_script_of(sentence, "這是什麼？") == convert(sentence)


@pytest.mark.parametrize(
    ("question", "is_traditional"),
    [("高鐵怎麼走", True), ("皇后在裡面嗎", True), ("高铁怎么走", False), ("著名作家是谁", False),
     ("乾隆年间", False), ("台灣的签证怎么办理", False), ("how?", False), ("年假", False)],
)  # fmt: skip
def test_most_characters_decide_the_script_of_a_question(question: str, is_traditional: bool) -> None:
    assert (in_script_of("请", question) == "請") is is_traditional
