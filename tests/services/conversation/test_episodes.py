"""Which questions ask about an earlier conversation, about which topic, and of which days."""

from __future__ import annotations

from datetime import UTC, date

import pytest

from core.conversation.turns import Turn, TurnStatus
from services.conversation.episodes import (
    ANSWER_CHARS,
    QUESTION_CHARS,
    episode_id,
    episode_of,
    moment_of,
    moments_of,
    parse_episode,
)

ID = "7c0a3a52-6a51-4f0e-9a44-1f7f2f1a9c11"
DONE = TurnStatus.COMPLETED
TODAY = date(2026, 11, 25)  # a Wednesday
ASKED = (
    ("上周我们谈过的报价", "报价", "2026-11-16/2026-11-22"),
    ("昨天聊的方案是什么", "方案", "2026-11-24/2026-11-24"),
    ("上周三我问的报销流程", "报销流程", "2026-11-18/2026-11-18"),
    ("三天前我们说过的合同", "合同", "2026-11-21/2026-11-23"),
    ("去年我们讨论的预算是多少", "预算", "2025-01-01/2025-12-31"),
    ("2026年3月我问过的保修", "保修", "2026-03-01/2026-03-31"),
    ("你上次推荐的那个餐厅叫什么？", "餐厅", ""),
    ("我问过你年假的事吗", "年假", ""),
    ("What did we discuss last week about the quote?", "quote", "2026-11-16/2026-11-22"),
    ("the restaurant you recommended two weeks ago", "restaurant", "2026-11-08/2026-11-14"),
    ("Did I ask about annual leave on Monday?", "annual leave", "2026-11-23/2026-11-23"),
    ("In our last conversation, what was the budget?", "budget", ""),
    ("What did you tell me about the refund policy?", "refund policy", ""),
    ("Do you remember our talk about the tomatoes?", "the tomatoes", ""),
    ("Do you remember our conversation about tomatoes?", "tomatoes", ""),
    ("Let's go on with our long discussion on pensions", "pensions", ""),
    ("What came out of our chat regarding the quote last week?", "the quote", "2026-11-16/2026-11-22"),
    ("the conversation we had about tomatoes", "tomatoes", ""),
    ("Which kettle came up in my chat with you about tea?", "tea", ""),
    ("还记得我们关于番茄的对话吗", "番茄", ""),
    ("我们上次关于番茄的聊天说到哪了", "番茄", ""),
    ("咱们关于预算的讨论", "预算", ""),
    ("我和你关于番茄的谈话", "番茄", ""),
    ("你记得关于番茄的那次聊天吗？", "番茄", ""),
    ("昨天我们聊番茄的那次", "番茄", "2026-11-24/2026-11-24"),
    ("跟你聊番茄的那回，你推荐了什么", "番茄", ""),
)
NOT_ASKED = (
    "你知道量子计算吗", "我听说过量子计算", "我想问一下年假怎么申请", "请告诉我报销流程",
    "上个月的报价是多少", "昨天的会议记录在哪里？", "上周会议上说了什么", "我们公司怎么说的",
    "你建议我怎么做？",
    "How do I ask for leave?", "Who asked for the report last week?", "I want to talk about pensions",
    "我们公司关于番茄的对话", "关于预算的讨论有哪些", "我们关于年假的讨论会在哪", "帮我写一段关于番茄的对话",
    "我想和你聊番茄", "怎样导出我们的对话？",
    "The discussion about pensions in the report", "Write a chat about tea",
    "How long is a conversation kept?", "our tomatoes", "What does the contract say about penalties?",
    "Tell me about last year's budget", "", "x" * 9_000,
)  # fmt: skip


@pytest.mark.parametrize(("question", "about", "days"), ASKED)
def test_a_question_about_an_earlier_conversation_has_its_topic_and_days(
    question: str, about: str, days: str
) -> None:
    asked = parse_episode(question, TODAY)
    assert asked is not None
    assert about in asked.topic
    assert "/".join(each.isoformat() for each in asked.days or ()) == days


@pytest.mark.parametrize("question", NOT_ASKED)
def test_every_other_question_is_not_about_one(question: str) -> None:
    assert parse_episode(question, TODAY) is None


@pytest.mark.parametrize(
    "question", ["我们上次聊了什么？", "What did we talk about yesterday?", "我们之前讨论过什么？"]
)
def test_a_question_that_names_no_subject_has_no_topic(question: str) -> None:
    asked = parse_episode(question, TODAY)
    assert asked is not None
    assert (asked.topic, asked.sure) == ("", True)


def test_a_question_that_may_mean_this_conversation_is_not_sure() -> None:
    asked = parse_episode("你说过的第二点再解释一下", TODAY)
    assert asked is not None
    assert not asked.sure


def test_a_conversation_as_a_noun_is_an_earlier_one() -> None:
    for question in ("our talk about tomatoes", "我们关于番茄的对话"):
        asked = parse_episode(question, TODAY)
        assert asked is not None
        assert asked.sure


def test_days_are_in_the_local_time_zone() -> None:
    since_us, until_us = moments_of((date(2026, 11, 24), date(2026, 11, 24)), UTC)
    assert until_us - since_us == 86_400_000_000


def test_a_turn_is_summarised_briefly_in_its_own_language() -> None:
    turn = Turn(
        ID,
        "s",
        "o",
        "报价是多少",
        status=DONE,
        created_us=1_700_000_000_000_000,
        answer="三万\n元" + "。" * 999,
    )
    told = episode_of(turn, UTC)
    assert told.content.startswith("2023-11-14 的另一个会话里，我问：“报价是多少”，得到的回答：“三万 元")
    assert len(told.content) < QUESTION_CHARS + ANSWER_CHARS
    english = Turn(ID, "s", "o", "How much?", created_us=1, status=DONE, answer="Ten.")
    assert episode_of(english, UTC).content.endswith('I asked: "How much?". The answer: "Ten."')


def test_an_episodes_id_contains_the_time_and_not_the_turn() -> None:
    """Discriminates: a record of a prompt that names an erased turn."""
    turn = Turn(ID, "s", "o", "q", status=DONE, created_us=1_700_000_000_000_001)
    assert moment_of(episode_id(turn)) == turn.created_us
    assert not set(turn.turn_id.split("-")) & set(episode_id(turn).split("-"))
