"""Plain statements that people make about themselves, in both languages; and what only looks like one."""

from __future__ import annotations

import pytest

from core.memory.statements import self_statements


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
def test_plain_statements_about_oneself_are_recognised(text: str, contents: list[str]) -> None:
    assert [draft.content for draft in self_statements(text)] == contents


@pytest.mark.parametrize(
    "text",
    [
        "我叫他来", "我叫了外卖", "我叫外卖", "我叫小李去", "我叫王明过来帮忙", "我叫车去机场", "我叫什么？",
        "我叫什么名字", "你知道我叫什么吗",
        "他写道：“你好。我叫李雷。”", "她写的是：「到了！我住在北京！」然后就没消息了",
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
def test_text_that_only_looks_like_a_statement_about_oneself_is_not_one(text: str) -> None:
    """Discriminates: addressing somebody, questions, quotations, suppositions, and statements about
    others."""
    assert self_statements(text) == []


NAMED, LIVES = "The user's name is Eva", "The user lives in Graz"
NURSE, IN_SALES = "The user works as a nurse", "The user's department is the sales team"
LI, SUZHOU = "用户的名字是小李", "用户住在苏州"


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("我叫小李，住在苏州。", [LI, SUZHOU]),
        ("我叫小李,住在苏州", [LI, SUZHOU]),
        ("你好，我叫小李，现在住在苏州。", [LI, SUZHOU]),
        ("我叫小李，目前住在苏州", [LI, SUZHOU]),
        ("我叫小李，今年30岁，住在苏州。", [LI, SUZHOU]),
        ("我叫小李；家在苏州。", [LI, SUZHOU]),
        ("我叫小李，我住在苏州。", [LI, SUZHOU]),
        ("我叫小李，并且住在苏州。", [LI, SUZHOU]),
        ("我叫小李，住在成都。", [LI, "用户住在成都"]),
        ("我叫小李，住在苏州工业园区。", [LI, "用户住在苏州工业园区"]),
        ("我叫小李，搬到了苏州。", [LI, SUZHOU]),
        ("我住在苏州，叫小李。", [SUZHOU]),
        ("我住在苏州，改叫小李了。", [SUZHOU, LI]),
        ("我叫小李，是财务部的，住在苏州", [LI, "用户的部门是财务部", SUZHOU]),
        ("我叫小李，在法务部工作，住在苏州。", [LI, "用户的部门是法务部", SUZHOU]),
        ("我叫小李，是一名护士，住在苏州。", [LI, "用户的职位是护士", SUZHOU]),
        ("我是小王，在北京工作", ["用户的名字是小王"]),
        ("我是小王，住在苏州。", ["用户的名字是小王", SUZHOU]),
        ("我叫小李，住在苏州。推荐一家餐厅？", [LI, SUZHOU]),
        ("我是财务部的，住在苏州，请问怎么报销", ["用户的部门是财务部", SUZHOU]),
        ("My name is Eva, and I live in Graz.", [NAMED, LIVES]),
        ("My name is Eva and I live in Graz.", [NAMED, LIVES]),
        ("My name is Eva, I live in Graz.", [NAMED, LIVES]),
        ("I live in Graz, and my name is Eva.", [LIVES, NAMED]),
        ("I'm called Eva, I'm 30, and I live in Graz.", [NAMED, LIVES]),
        ("I work as a nurse and live in Graz", [NURSE, LIVES]),
        ("I work as a baker, and live in Graz.", ["The user works as a baker", LIVES]),
        ("I live in Graz and work as a nurse.", [LIVES, NURSE]),
        ("I live in Graz and work in the sales team.", [LIVES, IN_SALES]),
        ("I work in the sales team, and I moved to Graz.", [IN_SALES, LIVES]),
        ("My name is Eva, and my husband is a cook.", [NAMED]),
    ],
)  # fmt: skip
def test_the_continuation_of_a_sentence_is_read_too(text: str, contents: list[str]) -> None:
    """Discriminates: missing a place because the subject appears only before the comma."""
    assert [draft.content for draft in self_statements(text)] == contents


@pytest.mark.parametrize(
    "text",
    [
        "我朋友叫小李，住在苏州", "我叫他小李，住在苏州",
        "他叫小张，是财务部的", "我爸爸换了工作，是财务部的",
        "我爸爸改了姓，改叫李四", "我和小王是同事，住在苏州",
        "朋友小李，住在苏州", "听说他搬家了，搬到了苏州",
        "如果我叫小李，住在苏州，怎么落户", "假如我叫小李，住在苏州。", "小说里我叫小李，住在苏州。",
        "在梦里，我叫小李，住在苏州", "翻译：我叫小李，住在苏州。", "请翻译成英文：我叫小李，住在苏州。",
        "帮我润色：我叫小李，住在苏州", "我叫小李，住在苏州吗？",
        "你知道吗，住在苏州很贵", "他们说，住在苏州好",
        "我是小白，住在哪里", "我是老广，住在哪里都行", "我是小学生，住在哪里好",
        "我叫外卖，住在苏州", "我叫王老师，住在苏州", "倘若我叫小李，住在苏州",
        "My friend is called Eva, and lives in Graz.", "They think I am late, and I live in Rome",
        "My brother works as a nurse and live in Graz",
        "If I work as a nurse and live in Graz, what tax do I pay",
        "I work as a matter of principle and live in a flat", "Imagine I work as a nurse and live in Graz",
        "In my novel I live in Graz, and my name is Eva", "Translate: my name is Eva, and I live in Graz.",
        "Do I work as a nurse and live in Graz?", "She says, and I live in Graz",
        "People work as a nurse and live in Graz", "Let us say I live in Graz and work as a nurse",
    ],
)  # fmt: skip
def test_continuations_about_others_or_suppositions_are_not_remembered(text: str) -> None:
    """Discriminates: inheriting the subject from a sentence about somebody else."""
    assert self_statements(text) == []


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("我叫小李，我朋友住在苏州", [LI]),
        ("我叫小李，我朋友是医生，住在苏州", [LI]),
        ("我叫小李，老婆叫小王，住在苏州", [LI]),
        ("我叫小李，住在苏州很贵", [LI]),
        ("我叫小李，住在苏州的朋友叫我小张", [LI]),
        ("我叫小李，住在苏州比较便宜", [LI]),
        ("我叫小李，住在苏州吧", [LI]),
        ("我叫小李，住在苏州是不是很贵", [LI]),
        ("我叫小李，搬到苏州要带什么", [LI]),
        ("我叫小李，搬到苏州之后呢", [LI]),
        ("我叫小李，想住在苏州", [LI]),
        ("我叫小李，以前住在苏州", [LI]),
        ("我叫小李，不住在苏州", [LI]),
        ("My name is Eva, and my friend lives in Graz.", [NAMED]),
        ("My name is Eva, my parents are farmers, and live in Graz.", [NAMED]),
        ("My name is Eva, they say, and I live in Graz", [NAMED]),
        ("I work as a nurse with people who sing and live in Graz", [NURSE]),
        ("I work as a nurse and my sister as a cook and live in Graz", [NURSE]),
        ("I live in Graz and work in the evening", [LIVES]),
        ("I live in Graz and work for a living", [LIVES]),
    ],
)  # fmt: skip
def test_after_a_statement_only_continuations_about_its_writer_are_read(
    text: str, contents: list[str]
) -> None:
    assert [draft.content for draft in self_statements(text)] == contents


def test_long_texts_are_not_matched_by_rules() -> None:
    assert self_statements("我叫张三。" + "长" * 3_000) == []
