"""The write gate: what is refused and why, which memories are the same fact, which contradict each other."""

from __future__ import annotations

import pytest

from core.memory.gate import (
    Decision,
    Neighbour,
    Refusal,
    confirms,
    contradicts,
    decide,
    holds_secret,
    is_same,
    refused_always,
    refused_proposal,
    statement_of,
)
from core.memory.record import MAX_CONTENT_CHARS, Memory, MemoryDraft


@pytest.mark.parametrize(
    "text",
    [
        "我的密码是hunter2", "密码：Tr0ub4dor", "验证码是 4432", "my password is hunter2", "The PIN is 4821",
        "api key = abc123def",
        "token: 9f8a7b6c", "sk-abcdefgh12345678", "AKIAIOSFODNN7EXAMPLE", "4111 1111 1111 1111",
        "卡号4111111111111111",
        "我的身份证号是11010519491231002X", "身份证 110105194912310021", "SSN 536-90-4399",
        "DE89370400440532013000",
        "my passport number is X1234567", "postgres://admin:geheim@db/x", "-----BEGIN RSA PRIVATE KEY-----",
        "密码是１２３４５６", "信用卡 6222020200112233",
        "我的支付密码 889977", "wifi password hunter2222", "WLAN密码：a1b2c3d4", "my PIN 4821",
        "my login is bob and the pw is Tr0ub4dor", "the door code is 4411#", "小区门禁码是2580",
        "my driver's license number is D1234-56789", "驾驶证号 310101199001",
    ],
)  # fmt: skip
def test_secrets_are_detected(text: str) -> None:
    assert holds_secret(text)
    assert refused_always(text) is Refusal.SECRET


@pytest.mark.parametrize(
    "text",
    [
        "密码由IT部门管理", "my password is in the vault", "The password policy is strict", "订单号 12345678",
        "我的电话是13800138000",
        "my phone number is 555-0134", "the secret of good tea", "用户的工号是20394",
        "会议在 2026-11-25 10:30", "token limits matter",
        "password rules of 2024", "密码 2024 年改过一次", "my passport expires 2030-05-01",
        "我的驾照 2030 年到期", "the source code is 4000 lines", "合同金额 1,250,000 元",
        "The user's birthday is 1990-04-12",
    ],
)  # fmt: skip
def test_text_without_secrets_passes(text: str) -> None:
    """Discriminates: every number, or every mention of a password, taken for a secret."""
    assert not holds_secret(text)
    assert refused_always(text) is None


def test_empty_and_overlong_memories_are_refused() -> None:
    assert refused_always(" \n") is Refusal.EMPTY
    assert refused_always("长" * (MAX_CONTENT_CHARS + 1)) is Refusal.TOO_LONG
    assert refused_always("长" * MAX_CONTENT_CHARS) is None


@pytest.mark.parametrize(
    ("proposal", "said", "why"),
    [
        ("用户住在巴黎", "我住在巴黎", None),
        ("用户的名字是张三", "你好，我叫张三", None),
        ("用户对花生过敏", "我对花生过敏，能吃什么？", None),
        ("The user is allergic to peanuts", "I'm allergic to peanuts, what can I eat?", None),
        ("用户的姐姐住在巴黎", "我姐姐住在巴黎", None),
        ("用户住在巴黎", "我姐姐住在巴黎", Refusal.UNSUPPORTED),
        ("用户住在巴黎", "你好", Refusal.UNSUPPORTED),
        ("用户住在巴黎", "如果我住在巴黎就好了", Refusal.UNSUPPORTED),
        ("用户喜欢咖啡", "我不喜欢咖啡", Refusal.UNSUPPORTED),
        ("用户养了十只鹦鹉", "我养了几只鹦鹉", Refusal.UNSUPPORTED),
        ("用户养了十只鹦鹉", "我养了九只鹦鹉", Refusal.UNSUPPORTED),
        ("用户养了九只鹦鹉", "我养了九只鹦鹉", None),
        ("The user's desk is 302", "what is my desk, 302", Refusal.UNSUPPORTED),
        ("用户的工号是20395", "我的工号是20394", Refusal.UNSUPPORTED),
        ("The user lives in Oslo", "Is it true that people live in Oslo?", Refusal.UNSUPPORTED),
        ("地球绕太阳转", "地球绕太阳转", Refusal.NOT_ABOUT_PERSON),
        ("李雷喜欢篮球", "李雷喜欢篮球", Refusal.NOT_ABOUT_PERSON),
        ("助手的名字是问脉", "你叫问脉", Refusal.NOT_ABOUT_PERSON),
        ("The user wants to know the fee", "I want to know the fee", Refusal.PASSING),
        ("用户询问年假", "年假怎么申请", Refusal.PASSING),
        ("用户这次要一个简短的回答", "这次要一个简短的回答", Refusal.PASSING),
        ("用户的密码是hunter2", "我的密码是hunter2", Refusal.SECRET),
    ],
)
def test_a_proposal_must_be_about_the_person_lasting_and_stated_in_the_source(
    proposal: str, said: str, why: Refusal | None
) -> None:
    """Discriminates: words that occur in the source, but about someone else, negated, hypothetical or in a
    question."""
    assert refused_proposal(proposal, [said]) is why


def test_a_proposal_without_a_source_is_refused() -> None:
    assert refused_proposal("用户住在巴黎", []) is Refusal.NO_SOURCE


@pytest.mark.parametrize(
    ("content", "slot", "value"),
    [
        ("用户的名字是张三", "name", "张三"), ("用户叫张三", "name", "张三"), ("我叫张三", "name", "张三"),
        ("The user's name is Alex", "name", "alex"), ("My name is Alex", "name", "alex"),
        ("我是财务部的", "department", "财务部"), ("the user works in the sales team", "department",
        "salesteam"),
        ("用户住在上海", "place", "上海"), ("I live in Berlin", "place", "berlin"), ("用户的地址是上海",
        "place", "上海"),
        ("我的工位是302", "desk", "302"), ("my locker number is 12", "locker number", "12"),
        ("用户不喜欢红茶", "like:红茶", "no"), ("The user likes green tea", "like:greentea", "yes"),
        ("用户讨厌香菜", "like:香菜", "no"), ("用户今年30岁", "age", "30"),
    ],
)  # fmt: skip
def test_a_memory_is_parsed_as_a_statement_of_a_kind(content: str, slot: str, value: str) -> None:
    statement = statement_of(content)
    assert statement is not None
    assert (statement.slot, statement.value) == (slot, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("用户毕业于浙江大学", "用户毕业于武汉大学"),
        ("用户每周二开组会", "用户每周四开组会"),
        ("用户用的电脑是ThinkPad", "用户用的电脑是MacBook"),
        ("用户每天坐地铁上班", "用户每天坐班车上班"),
        ("The user has a team meeting every Tuesday", "The user has a team meeting every Thursday"),
        ("The user graduated from MIT", "I graduated from Leiden University"),
    ],
)
def test_recurring_and_possessed_things_also_have_a_single_value(one: str, other: str) -> None:
    assert contradicts(one, other)
    assert is_same(one, one, None)


def test_text_of_no_kind_is_not_a_statement() -> None:
    for content in (
        "用户对花生过敏",
        "I'm vegan",
        "地球绕太阳转",
        "The deadline is Friday",
        "我们在上海开会",
    ):
        assert statement_of(content) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("用户的名字是张三", "用户叫张三", True),
        ("用户的名字是张三", "我叫张三。", True),
        ("用户对花生过敏", "用户有花生过敏", True),
        ("The user is allergic to peanuts", "The user has an allergic reaction to peanuts", False),
        ("用户喜欢红茶", "用户喜欢绿茶", False),
        ("用户喜欢红茶", "用户不喜欢红茶", False),
        ("周报在周五 5 点前交", "周报在周五 6 点前交", False),
        ("用户的名字是张三", "用户的名字是李四", False),
    ],
)
def test_two_memories_are_one_fact_by_kind_words_and_meaning(one: str, other: str, same: bool) -> None:
    assert is_same(one, other, z=4.0) is same
    assert is_same(other, one, z=4.0) is same


def test_a_single_valued_fact_is_contradicted_by_another_value() -> None:
    assert contradicts("用户的名字是李四", "用户叫张三")
    assert contradicts("The user lives in Oslo", "I live in Berlin")
    assert contradicts("用户不喜欢红茶", "用户喜欢红茶")
    assert not contradicts("用户的孩子是小明", "用户的孩子是小红")  # a person may have several
    assert not contradicts("用户住在上海", "用户的名字是张三")


def _memory(content: str, valid_from: int = 0, valid_until: int | None = None) -> Memory:
    return Memory(content, "local", content, valid_from=valid_from, valid_until=valid_until)


def test_a_repeated_fact_gains_a_turn_a_contradiction_ends_the_old_one_and_others_are_new() -> None:
    named, lives = _memory("用户的名字是张三", 5), _memory("用户住在上海", 5)
    near = [Neighbour(named), Neighbour(lives)]
    assert decide(MemoryDraft("我叫张三", said_us=9), near) == Decision(same=named)
    assert decide(MemoryDraft("用户改叫李四", said_us=9), near) == Decision(ends=(named,))
    assert decide(MemoryDraft("用户养蜜蜂", said_us=9), near) == Decision()


def test_an_earlier_statement_does_not_end_a_later_one() -> None:
    """Discriminates: turns read out of order restoring an old name."""
    later = _memory("用户的名字是李四", 9)
    assert decide(MemoryDraft("用户的名字是张三", said_us=5), [Neighbour(later)]) == Decision(ended_by=later)


def test_an_ended_fact_may_be_stated_again() -> None:
    ended, now = _memory("用户的名字是张三", 1, valid_until=5), _memory("用户的名字是李四", 5)
    decision = decide(MemoryDraft("用户的名字是张三", said_us=9), [Neighbour(ended), Neighbour(now)])
    assert decision == Decision(ends=(now,))


def test_a_yes_is_distinguished_from_other_answers() -> None:
    assert all(map(confirms, ("对", "是的，没错", "Yes, exactly", "correct")))
    assert not any(map(confirms, ("对不起", "是财务部", "yesterday", "No, that is wrong", "正在看")))
