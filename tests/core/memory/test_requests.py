"""What is to be remembered or forgotten, by rule: what matches in both languages, and what must not."""

from __future__ import annotations

import pytest

from core.memory.record import MemoryType
from core.memory.requests import explicit_request, self_statements, type_of


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
    ],
)  # fmt: skip
def test_what_only_looks_like_a_request_is_none(text: str) -> None:
    """Discriminates: questions, quotes, talk of forgetting, and requests about the conversation itself."""
    assert explicit_request(text) is None


def test_a_request_with_a_question_behind_it_is_not_the_whole_message() -> None:
    for text in ("请记住我对花生过敏。推荐一道菜？", "Remember that I am vegan. What can I cook?"):
        request = explicit_request(text)
        assert request is not None
        assert not request.whole
        assert request.content in ("我对花生过敏", "I am vegan")


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("我叫张三", ["用户的名字是张三"]),
        ("你好，我叫张三，是财务部的。", ["用户的名字是张三", "用户的部门是财务部"]),
        ("我是市场部的，请问年假怎么申请", ["用户的部门是市场部"]),
        ("我改叫李四了", ["用户的名字是李四"]),
        ("改叫李四", ["用户的名字是李四"]),
        ("以后我改叫李四了", ["用户的名字是李四"]),
        ("从现在开始请叫我李四", ["用户的名字是李四"]),
        ("其实我叫李四", ["用户的名字是李四"]),
        ("我改名为李四", ["用户的名字是李四"]),
        ("我的名字改成李四了", ["用户的名字是李四"]),
        ("以后叫我老王吧", ["用户的名字是老王"]),
        ("我叫 Alice", ["用户的名字是Alice"]),
        ("我的名字是欧阳明", ["用户的名字是欧阳明"]),
        ("我在法务部工作", ["用户的部门是法务部"]),
        ("我是一名工程师", ["用户的职位是工程师"]),
        ("我住在上海", ["用户住在上海"]),
        ("My name is Alex", ["The user's name is Alex"]),
        ("Hi, my name's Anna.", ["The user's name is Anna"]),
        ("My name is Alex Smith and I work in sales", ["The user's name is Alex Smith"]),
        (
            "My name is Alex and I work in the sales team.",
            ["The user's name is Alex", "The user's department is the sales team"],
        ),
        ("please call me Bob", ["The user's name is Bob"]),
        ("Please call me Bob from now on", ["The user's name is Bob"]),
        ("From now on call me Bob", ["The user's name is Bob"]),
        ("I changed my name to Bob", ["The user's name is Bob"]),
        ("I'm called Bob now", ["The user's name is Bob"]),
        ("I live in Berlin now", ["The user lives in Berlin"]),
        ("I've moved to New York with my family", ["The user lives in New York"]),
        ("I work in the sales team.", ["The user's department is the sales team"]),
        ("I'm from the legal department", ["The user's department is the legal department"]),
        ("I live in Berlin", ["The user lives in Berlin"]),
    ],
)
def test_the_plainest_statements_about_oneself_are_read(text: str, contents: list[str]) -> None:
    assert [draft.content for draft in self_statements(text)] == contents


@pytest.mark.parametrize(
    "text",
    [
        "我叫他来", "我叫了外卖", "我叫外卖", "我叫小李去", "我叫王明过来帮忙", "我叫车去机场", "我叫什么？",
        "我叫什么名字", "你知道我叫什么吗",
        "“我叫张三”怎么翻译", "他说“我叫张三”", "他说我叫张三", "如果我叫张三呢", "假如我是财务部的",
        "我叫王老师", "我叫大家来开会",
        "以后我改叫车了", "公司以后改叫星河了", "我改名成功了", "其实我叫他来过", "I go by Train",
        "I changed my name tag", "They think I am late and I live in Rome",
        "叫我去开会", "他叫我小张", "老板叫我小张", "他叫张三", "我同事叫李四", "我是不是财务部的",
        "我是哪个部门的", "我是问财务部的流程",
        "我是给财务部的", "他是财务部的", "我不是财务部的", "我住在哪", "他住在上海", "我想住在上海",
        "我是一名什么师", "例如：我叫张三",
        "我的名字是什么", "怎么改叫李四", "我被叫做什么",
        "call me back", "Call me tomorrow", "call me when you are done", "call me Monday",
        "Call me Back Later", "call me a taxi",
        "call me crazy", "my name is not Bob", "What is my name?", "is my name Bob?",
        "If my name is Bob, what then",
        '"My name is Bob" in French', "He said my name is Bob", "Suppose I live in Berlin",
        "I live in a flat",
        "my name is on the list", "her name is Anna", "I work in the evening", "do I work in the sales team?",
        "Imagine my name is Bob", "they call me Bob", "you can call me anytime",
        "I would like to live in Berlin",
        "What if I live in Berlin?",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_statement_about_oneself_is_none(text: str) -> None:
    """Discriminates: calling somebody, questions, quotes, suppositions, and what is said of others."""
    assert self_statements(text) == []


def test_long_texts_are_not_read_by_rule() -> None:
    assert explicit_request("记住：" + "长" * 2_000) is None
    assert self_statements("我叫张三。" + "长" * 3_000) == []


def test_what_is_asked_to_be_remembered_has_a_type_by_its_words() -> None:
    assert type_of("以后请用英文回答") is MemoryType.INSTRUCTION
    assert type_of("always answer in French") is MemoryType.INSTRUCTION
    assert type_of("我喜欢喝红茶") is MemoryType.PREFERENCE
    assert type_of("the deadline is Friday") is MemoryType.FACT
