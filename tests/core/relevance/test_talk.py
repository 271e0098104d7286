"""Detecting small talk that is not a question to the documents: by phrases that cover all of it, in both
languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.talk import MAX_TALK_CHARS, Talk, asks_how, is_about_languages, talk_of
from tests.support.machine import at_most

PHRASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "talk.jsonl").read_text(encoding="utf-8").splitlines()
]
LEAST_KNOWN = {"dev": 0.9, "held": 0.7}  # recall of talk; held: held-out texts


@pytest.mark.parametrize("split", LEAST_KNOWN)
def test_most_talk_is_recognised(split: str) -> None:
    """Discriminates: recognising phrases only word for word."""
    said = [talk_of(row["text"]) for row in PHRASES if row["split"] == split and not row["search"]]
    assert sum(kind is not None for kind in said) >= LEAST_KNOWN[split] * len(said) > 100


def test_no_question_that_looks_like_talk_is_taken_for_it() -> None:
    """Discriminates: looking for a phrase anywhere in the text."""
    questions = [row["text"] for row in PHRASES if row["search"]]
    assert len(questions) > 200
    assert [text for text in questions if talk_of(text)] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("你好呀~ 在吗？", Talk.GREETING),
        ("Hi there!", Talk.GREETING),
        ("hellooooo", Talk.GREETING),
        ("hi, thanks a lot!", Talk.THANKS),
        ("👍", Talk.CLOSING),
        ("你是谁？能做什么", Talk.ASSISTANT),
        ("what can you do?", Talk.ASSISTANT),
        ("同事能看到我的问题吗？", Talk.PRIVATE),
        ("聊天记录会被别人看到吗", Talk.PRIVATE),
        ("Can my colleagues see my questions?", Talk.PRIVATE),
        ("Do you store my chats?", Talk.PRIVATE),
        ("谁能看到我的个人信息", None),
        ("谁能看？", None),
        ("who can see my personal data?", None),
        ("who can see it?", None),
        ("37*12 等于多少？", Talk.ARITHMETIC),
        ("what is 15% of 240?", Talk.ARITHMETIC),
        ("今天几号？", Talk.TODAY),
        ("请问今天是星期几呀", Talk.TODAY),
        ("现在几点了", Talk.TODAY),
        ("What day is it today?", Talk.TODAY),
        ("今天食堂几点开门？", None),
        ("年会是几月几号？", None),
        ("几月几号？", None),
        ("今天几号发工资？", None),
        ("What date is the meeting?", None),
        ("短一点", Talk.SHORTER),
        ("Please translate your last answer into English", Talk.TRANSLATED),
        ("我刚才问了什么", Talk.QUESTIONS),
        ("What did I ask first?", Talk.QUESTIONS),
        ("这个答案的出处是哪里", Talk.SOURCES),
        ("总结一下上面的对话", Talk.SUMMARY),
        ("真的吗", Talk.CERTAIN),
        ("真的？", Talk.CERTAIN),
        ("真的有这么多吗", Talk.CERTAIN),
        ("你确定吗？", Talk.CERTAIN),
        ("你確定嗎", Talk.CERTAIN),
        ("真係？", Talk.CERTAIN),
        ("真係㗎？", Talk.CERTAIN),
        ("係咪真㗎", Talk.CERTAIN),
        ("别骗我", Talk.CERTAIN),
        ("are you sure?", Talk.CERTAIN),
        ("Sure?", Talk.CERTAIN),
        ("prove it", Talk.CERTAIN),
        ("你从哪看的", Talk.SOURCES),
        ("你從哪裡看到的", Talk.SOURCES),
        ("你喺邊度睇到㗎？", Talk.SOURCES),
        ("邊個話㗎", Talk.SOURCES),
        ("谁告诉你的", Talk.SOURCES),
        ("where did you get that?", Talk.SOURCES),
        ("Where'd you get that from?", Talk.SOURCES),
        ("真的，谢谢", Talk.THANKS),
        ("sure", Talk.CLOSING),
        ("真的需要盖章吗？", None),
        ("报销从哪看", None),
        ("我從哪裡看工資條", None),
        ("邊度有得食飯", None),
        ("where did you get that printer?", None),
        ("謝謝", Talk.THANKS),
        ("再說一遍", Talk.REPEAT),
        ("你刚才说多久？", Talk.REPEAT),
        ("你说的是几点来着", Talk.REPEAT),
        ("how much did you say it was?", Talk.REPEAT),
        ("老师说是几点", None),
        ("说明书要多久", None),
        ("唔該翻譯成英文", Talk.TRANSLATED),
        ("我叫小王", Talk.INTRODUCTION),
        ("你好！我叫小王，住在苏州。", Talk.INTRODUCTION),
        ("My name is Alex and I live in Rome", Talk.INTRODUCTION),
        ("Hi, I'm in the sales team.", Talk.INTRODUCTION),
        ("我叫小王。退货要几天", None),
        ("我是财务部的\n报销找谁", None),
        ("我叫小王，我想退货", None),
        ("My name is Alex. How long do returns take?", None),
        ("我叫他来", None),
    ],
)
def test_each_kind_of_talk_by_name(text: str, kind: Talk | None) -> None:
    assert talk_of(text) is kind


@pytest.mark.parametrize(
    "text",
    [
        "", "?", "Hm?", "好的？", "And then?", "！！！", "年假", "AX-220", "E-204", "2026-11-23",
        "10-15 days", "service 24/7",
        "what can you do with a gold membership?", "谢谢惠顾券怎么用", "what is 15% deposit rule?",
        "1.2.3", "hi" * MAX_TALK_CHARS,
    ],
)  # fmt: skip
def test_a_request_for_information_is_not_talk(text: str) -> None:
    assert talk_of(text) is None


def test_asking_how_to_work_with_answers_is_not_a_request_about_the_last_one() -> None:
    """Discriminates: phrases alone, which cover each of these texts."""
    assert talk_of("看回答引用了哪一段") is Talk.SOURCES
    assert talk_of("怎么看到回答引用了哪一段？") is None
    assert talk_of("怎么翻译") is None
    assert talk_of("怎么称呼你") is Talk.ASSISTANT


@given(st.text(max_size=300))
def test_no_text_is_talk_once_it_asks_for_something(text: str) -> None:
    """Discriminates: a phrase that counts although the rest of the text means something else."""
    assert talk_of(f"{text} 核桃油") is None


@pytest.mark.parametrize(
    "text", ["的" * 120, "you " * 30, "1+" * 60, "((((" * 30, "a " * 60, "👍" * 120, "我想问一下" * 24]
)
def test_a_hostile_text_takes_little_time(text: str) -> None:
    """Discriminates: a lead-in to "how" that can match in two ways at every occurrence."""
    talk_of("")
    with at_most(0.2):
        talk_of(text)
        asks_how(text)


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ("and in English?", ["How much is a guided tour in Chinese?"], True),
        ("法语呢", ["有英语讲解吗？"], True),
        ("in French too?", ["Is the map there in other languages?", "in German?", "thanks"], True),
        ("and in English?", ["How much is the tour?"], False),
        ("and in French?", ["What is the deposit?", "translate that to German"], False),
        ("translate that into English", ["How much is a guided tour in Chinese?"], False),
    ],
)
def test_a_language_is_the_subject_after_a_question_about_languages(
    text: str, before: list[str], expected: bool
) -> None:
    """Discriminates: always taking a language for a request to translate the last answer."""
    assert is_about_languages(text, before) is expected
