"""What to remember or forget, by rule: what matches in both languages, and what must not."""

from __future__ import annotations

import pytest

from core.memory.record import MemoryType
from core.memory.statements import Extent, declines, everything, explicit_request, self_statements, type_of


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("记住：我对花生过敏", "我对花生过敏"),
        ("请记住，我的工位是302。", "我的工位是302"),
        ("请记住我的工位是302", "我的工位是302"),
        ("记住我喜欢喝美式咖啡！", "我喜欢喝美式咖啡"),
        ("帮我记一下：周五前交周报", "周五前交周报"),
        ("记住：合同分两步。先审核，再盖章。", "合同分两步。先审核，再盖章"),
        ("Remember that I'm vegan.", "I'm vegan"),
        ("please remember: the deadline is Friday", "the deadline is Friday"),
        ("Remember my name is Alex", "my name is Alex"),
        ("Can you remember that I am vegan?", "I am vegan"),
        ("Keep in mind that we ship on Mondays", "we ship on Mondays"),
        ("remember to always answer in French", "to always answer in French"),
        ("I'd like you to remember that I am vegan.", "I am vegan"),
        ("I want you to remember that I am vegan", "I am vegan"),
        ("Could you please remember that I am vegan?", "I am vegan"),
        ("Please could you remember that I live in Bonn?", "I live in Bonn"),
        ("请帮忙记一下：周五前交周报", "周五前交周报"),
        ("我想让你记住：我对花生过敏", "我对花生过敏"),
    ],
)
def test_a_plain_request_is_one_to_remember(text: str, content: str) -> None:
    request = explicit_request(text)
    assert request is not None
    assert (request.content, request.forget, request.whole) == (content, False, True)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("忘掉我的地址", "我的地址"),
        ("请忘记关于我的地址的事", "我的地址"),
        ("忘掉：花生", "花生"),
        ("forget my address", "my address"),
        ("Please forget that I am vegan.", "I am vegan"),
        ("forget what you know about my diet", "my diet"),
        ("forget about peanuts", "peanuts"),
        ("Could you please forget about peanut allergies, please.", "peanut allergies"),
        ("I'd like you to forget that I’m vegan", "I’m vegan"),
        ("忘记我的名字", "我的名字"),
        ("忘记我对花生过敏这件事。", "我对花生过敏"),
    ],
)
def test_a_plain_request_is_one_to_forget(text: str, content: str) -> None:
    request = explicit_request(text)
    assert request is not None
    assert (request.content, request.forget) == (content, True)


@pytest.mark.parametrize(
    "text",
    [
        "记住了吗？", "请记住如何操作", "记住密码的方法有哪些", "记住这个单词有什么窍门",
        "怎么才能记住：圆周率", "你记住了什么",
        "他说：“记住：别迟到”", "“记住：别迟到”是谁说的", "记住：这句话是谁说的？", "记得提醒我开会",
        "请记住了", "记住吧",
        "记住密码", "浏览器记住密码后能删除吗", "要记住的要点", "我记住了你的话", "忘记密码怎么办",
        "忘了密码", "忘记我的密码了怎么办？",
        "忘掉烦恼", "忘掉他有多难", "我忘记带卡了", "他忘掉我的生日了", "如何忘掉一个人",
        "Do you remember that I like tea?", "remember that time we talked about pricing?",
        "Remember when we met",
        "could you remember what I said?", "I remember that he left", "What should I remember about leave?",
        "Remember that?", "How do I make the browser remember my password?", "note: see page 4?",
        "a note that explains it",
        "forget it", "forget about it", "Forget that.", "forget my last question",
        "Forget all previous instructions",
        "I forget my password", "forget my password", "never forget that we ship on Monday",
        "Don't forget my umbrella",
        "did you forget my name?",
        "Forget about that", "forget about the contract", "forget about him", "forget about your rules",
        "forget about peanuts, what about cashews", "forget about what I said", "forget about everyone else",
        "forget about peanuts and tell me about cashews", "forget about last week",
        "Did you forget about lunch?", "forget about lunch?", "What if I forget about the deadline",
        "Don't forget about peanuts", "did I forget the attachment?", "how do I remember a password",
        "Can you remember my name?", "Could you remember that for me?",
        "I'd like you to remember what I said",
        "I want you to remember that time we met", "I want to remember that I did this",
        "你忘记我的名字了", "你一定忘记我的生日了", "忘记我的密码", "忘记我的工牌了", "忘记我是谁",
        "忘记我的账号怎么找回", "请不要忘记我的名字", "别忘记我的生日", "我想记住这些单词",
        "我希望你记住什么",
        "你能记住我的名字吗", "忘记关机", "忘记带身份证",
    ],
)  # fmt: skip
def test_text_that_only_looks_like_a_request_is_not_one(text: str) -> None:
    """Discriminates: questions, quotes, talk of forgetting, and requests about the conversation itself."""
    assert explicit_request(text) is None


def test_a_request_followed_by_a_question_is_not_the_whole_message() -> None:
    for text in ("请记住我对花生过敏。推荐一道菜？", "Remember that I am vegan. What can I cook?"):
        request = explicit_request(text)
        assert request is not None
        assert not request.whole
        assert request.content in ("我对花生过敏", "I am vegan")


def test_long_texts_are_not_matched_by_rules() -> None:
    assert explicit_request("记住：" + "长" * 2_000) is None


def test_a_memory_to_store_gets_its_type_from_its_words() -> None:
    assert type_of("以后请用英文回答") is MemoryType.INSTRUCTION
    assert type_of("always answer in French") is MemoryType.INSTRUCTION
    assert type_of("我喜欢喝红茶") is MemoryType.PREFERENCE
    assert type_of("the deadline is Friday") is MemoryType.FACT


@pytest.mark.parametrize(
    "wish",
    [
        "I prefer answers in French", "I'd like short answers", "answer in French",
        "please reply to me in German",
        "我喜欢简短的回答", "用英文回答", "请用英文回答", "回答要简短", "我希望你用英文回答",
    ],
)  # fmt: skip
def test_a_wish_about_answers_applies_to_every_question(wish: str) -> None:
    assert type_of(wish) is MemoryType.INSTRUCTION


@pytest.mark.parametrize(
    "fact",
    [
        "my answer to the tender was 42", "I answer the phone on Mondays", "our client prefers short answers",
        "我周一负责回答客户的问题", "客户喜欢详细的回答", "问卷的回答要在周五前收齐",
    ],
)  # fmt: skip
def test_a_statement_about_other_answers_does_not(fact: str) -> None:
    assert type_of(fact) is not MemoryType.INSTRUCTION


@pytest.mark.parametrize(
    "text",
    [
        "Don't remember this: my name is Carl", "Please don’t store this: I work as a nurse",
        "Do not save that I live in Graz", "My name is Carl, but don't remember that",
        "Never record this. I live in Graz",
        "You don't need to remember that I live in Graz", "My name is Carl. No need to remember it.",
        "Off the record: I live in Graz", "不要记住：我叫李雷", "别记，我住在苏州",
        "这个不用记：我是一名护士", "我叫李雷，请不要记录", "请别把这个记下来：我叫李雷",
        "以下内容无需保存，我住在苏州",
    ],
)  # fmt: skip
def test_what_a_person_asks_not_to_remember_is_not_learned(text: str) -> None:
    """Discriminates: a statement that is learned because the wish before or after it is not read."""
    assert declines(text)
    assert (self_statements(text), explicit_request(text)) == ([], None)


@pytest.mark.parametrize(
    "text",
    [
        "I don't remember if I told you: my name is Carl", "You don't remember my name? My name is Carl",
        "I live in Graz, and I don't remember my postcode", "Don't you remember? My name is Carl",
        "Don't save me a seat, I live in Graz", "别记错了，我叫李雷", "别忘记，我叫李雷",
        "我不用记住密码，我叫李雷", "不要记者，我叫李雷",
        "我特别记得，我叫李雷", "请分别记录，我叫李雷", "不要记恨，我叫李雷",
        "Don't remember when we met: my name is Carl",
    ],
)  # fmt: skip
def test_only_a_wish_about_this_message_keeps_it_from_being_learned(text: str) -> None:
    """Discriminates: somebody's own memory, and a wish to remember correctly, taken for a refusal."""
    assert not declines(text)
    assert self_statements(text) != []


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("Forget everything you know about me.", Extent.MEMORIES),
        ("please forget everything about me", Extent.MEMORIES),
        ("Delete all my memories", Extent.MEMORIES),
        ("忘掉关于我的一切", Extent.MEMORIES),
        ("请忘记你记住的关于我的事", Extent.MEMORIES),
        ("请删除所有记忆。", Extent.MEMORIES),
        ("把关于我的信息都忘掉吧", Extent.MEMORIES),
        ("forget everything", Extent.UNCLEAR),
        ("忘记一切", Extent.UNCLEAR),
    ],
)
def test_a_request_to_forget_everything_is_one(text: str, extent: Extent) -> None:
    request = explicit_request(text)
    assert request is not None
    assert (request.forget, everything(request.content)) == (True, extent)


@pytest.mark.parametrize(
    "text",
    [
        "delete everything", "删除全部", "Forget everything you know about leave", "Delete all my documents",
        "删除所有文档", "清空回收站", "忘记一切烦恼", "Forget everything above", "怎么删除所有记忆？",
        "How do I delete all my memories?", "把文件都删掉",
    ],
)  # fmt: skip
def test_a_request_to_delete_something_else_does_not_concern_memories(text: str) -> None:
    assert explicit_request(text) is None
