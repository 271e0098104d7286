"""Whether a question is about a memory: by kind, by meaning within the list, by words, and by whom it is "
"about."""

from __future__ import annotations

import pytest

from core.memory.record import Memory
from core.memory.relevance import THRESHOLD, MemoryRelevance, kinds_asked


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("我叫什么？", "name"), ("What is my name?", "name"), ("Who am I?", "name"), ("我是哪个部门的",
        "department"),
        ("我叫什么，在哪个部门？", "department"), ("where do I live?", "place"), ("我的工位是多少", "desk"),
        ("What is my locker number?", "locker number"), ("我今年多大", "age"),
    ],
)  # fmt: skip
def test_the_kinds_of_statements_a_question_asks_for(question: str, kind: str) -> None:
    assert kind in kinds_asked(question)


def test_an_unrelated_question_asks_for_no_kind() -> None:
    assert kinds_asked("年假怎么申请？") == frozenset()
    assert kinds_asked("How do I claim travel expenses?") == frozenset()


def _used(question: str, *searched: tuple[str, float | None]) -> list[str]:
    memories = [(Memory(content, "o", content), cosine) for content, cosine in searched]
    chances = MemoryRelevance(question, 0.8, 0.036).chances(memories)
    return [
        memory.content for (memory, _), chance in zip(memories, chances, strict=True) if chance >= THRESHOLD
    ]


def test_requested_memories_are_included_but_not_others_about_the_same_person() -> None:
    """Discriminates: including everything about a person whenever a question says "my"."""
    assert _used("我叫什么？", ("用户的名字是张三", 0.84), ("用户养了一只鹦鹉", 0.85)) == ["用户的名字是张三"]


def test_what_we_talked_about_is_not_about_the_person() -> None:
    assert _used("今天我们谈过的报价是什么？", ("用户养了一只鹦鹉", 0.82)) == []
    assert _used("我们谈过我养了什么吗？", ("用户养了一只鹦鹉", 0.82)) == ["用户养了一只鹦鹉"]


@pytest.mark.parametrize(
    ("question", "memory", "other"),
    [
        ("What do I do on Saturdays?", "用户周末去爬山", "用户每天坐地铁上班"),
        ("我怎么去公司？", "The user commutes by bicycle", "The user's desk is 302"),
        ("How do I like to read things?", "用户喜欢用表格看资料", "用户的名字是张三"),
    ],
)
def test_across_languages_the_kind_counts_if_the_cosine_does_not(
    question: str, memory: str, other: str
) -> None:
    """Discriminates: a kind with words of one language only; one that the order of cosines overrules."""
    assert _used(question, (memory, 0.80), (other, 0.86)) == [memory]


def test_a_topic_counts_only_if_the_question_is_about_the_person() -> None:
    format_wish = ("The user prefers to read bullet points", 0.81)
    assert _used("What do dogs like?", format_wish) == []
    assert _used("How do I book a meeting room?", ("用户每周二开组会", 0.80)) == []


@pytest.mark.parametrize(
    ("question", "memory", "cosine"),
    [
        ("Where do I get office supplies?", "The user's main supplier is Lumen", 0.87),
        ("报销单我该去哪领？", "用户用的打印机是三楼的", 0.87),
        ("服务器端口是多少？", "用户的分机号是8012", 0.865),
        ("打印机卡纸怎么办？", "用户用的打印机是三楼的", 0.9),
        ("The printer is jammed, what now?", "The user's printer is the one on floor 3", 0.9),
        ("供应商准入要哪些材料？", "用户的主要供应商是恒达", 0.9),
    ],
)
def test_similarity_alone_does_not_include_a_memory_if_the_question_is_not_about_the_person(
    question: str, memory: str, cosine: float
) -> None:
    """Discriminates: taking "do I get" for a question about oneself; including the best memory for its
    similarity; taking a word for a kind of thing for the person's own."""
    assert _used(question, (memory, cosine), ("用户周末去爬山", 0.8)) == []


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("How do I change the battery of a ThinkPad X1?", "The user's laptop is a ThinkPad X1"),
        ("写封邮件给刘洋请假", "用户的主管是刘洋"),
        ("工位号是多少？", "用户的工位号是302"),
        ("Can I print on the ground floor printer?", "The user's printer is the one on floor 3"),
        ("三楼的打印机卡纸怎么办？", "用户用的打印机是三楼的"),
        ("请我吃饭要注意什么", "用户吃全素"),
        ("订机票时给我选什么位置？", "用户坐飞机要靠窗的座位"),
        ("How do I get to work?", "The user takes the ferry"),
    ],
)
def test_memories_a_question_names_or_asks_for_are_included(question: str, memory: str) -> None:
    """Discriminates: including a memory only if the question says "my"."""
    assert _used(question, (memory, 0.86), ("用户周末去爬山", 0.8)) == [memory]


def test_the_nearest_memories_of_a_person_are_included_but_none_for_an_unrelated_question() -> None:
    pet, food = ("The user has a cat called Otto", 0.86), ("The user is allergic to peanuts", 0.80)
    assert _used("What is my animal called?", pet, food) == [pet[0]]
    assert _used("When was the Eiffel Tower built?", pet, food) == []
    assert _used("How do I claim travel expenses?", pet, food) == []
    assert _used("What is my animal called?", (food[0], None)) == []
