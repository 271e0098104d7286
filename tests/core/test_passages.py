import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.passages import MAX_PASSAGE_CHARS, key_passage, sentences
from core.sparse import question_terms

GUIDE = """# 费用说明

专业版每月 99 元，按年付费打八折。团队版每月 299 元！企业版请联系销售（sales@example.com）。
- 试用期 14 天。
- 退款：7 天内全额

| 版本 | 价格 |
| --- | --- |
| 旗舰版 | 999 元 |

See e.g. the U.S. price list. Version 3.11 costs nothing. This line is
wrapped here. "Really?" Yes.
```python
MAX_RECENT_TURNS = 5
PORT = 8000
```
"""


def split(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


def passage(question: str, text: str = GUIDE) -> str:
    return key_passage(question_terms(question), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("第一句。第二句！第三句？", ["第一句。", "第二句！", "第三句？"]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("真的吗？！是的……好。", ["真的吗？！", "是的……", "好。"]),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "Dr. Smith paid 3.50 e.g. in cash. Then he left.",
            ["Dr. Smith paid 3.50 e.g. in cash.", "Then he left."],
        ),
        ("1. First item\n2. Second item", ["1. First item", "2. Second item"]),
        ("- a\n- b", ["- a", "- b"]),
        ("| a | b |\n| c | d |", ["| a | b |", "| c | d |"]),
        ("a line that\ngoes on. Next", ["a line that\ngoes on.", "Next"]),
        ("a title\n\nits text", ["a title", "its text"]),
        ("```\nx = a. b\ny = 2\n```", ["```", "x = a. b", "y = 2", "```"]),
        ("", []),
        (" \n\t\n ", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("专业版每个月多少钱？", "专业版每月 99 元，按年付费打八折。"),
        ("退款有期限吗", "- 退款：7 天内全额"),
        ("旗舰版的价格", "| 旗舰版 | 999 元 |"),
        ("企业版怎么买", "企业版请联系销售（sales@example.com）。"),
        ("What is MAX_RECENT_TURNS by default?", "MAX_RECENT_TURNS = 5"),
        ("what does version 3.11 cost?", "Version 3.11 costs nothing."),
    ],
)
def test_the_passage_is_the_sentence_that_answers(question: str, expected: str) -> None:
    assert passage(question) == expected


def test_neighbouring_sentences_that_add_words_of_the_question_are_taken_along() -> None:
    text = "开头无关。问脉的专业版按月计费。按年付费可以打折。结尾无关。"
    assert passage("专业版计费和按年打折", text) == "问脉的专业版按月计费。按年付费可以打折。"


def test_a_heading_is_never_the_passage_when_there_is_text() -> None:
    assert passage("费用说明", "开头。\n## 费用说明\n\n每月 99 元。") == "每月 99 元。"
    assert passage("费用说明", "## 费用说明") == "## 费用说明"


def test_nothing_of_the_question_gives_the_opening_and_nothing_gives_nothing() -> None:
    assert passage("completely unrelated") == "专业版每月 99 元，按年付费打八折。"
    assert passage("费用", "") == ""
    assert key_passage([], "只有一句。") == "只有一句。"


def test_a_sentence_that_is_too_long_is_cut_around_its_match() -> None:
    text = "甲" * 2000 + "退款期限七天" + "乙" * 2000
    assert "退款期限七天" in passage("退款期限", text)
    assert len(passage("退款期限", text)) <= MAX_PASSAGE_CHARS


@given(st.text(), st.text(alphabet="费用ab。.!?\n|-#` “”\"'1多少", max_size=600))
def test_a_passage_is_verbatim_and_short(question: str, text: str) -> None:
    found = passage(question, text)
    assert found in text
    assert len(found) <= MAX_PASSAGE_CHARS
    assert bool(found) == bool(text.strip())


@given(st.text(alphabet="费用ab。.!?\n|-#` “”\"'1e.g", max_size=600))
def test_sentences_lose_nothing_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert all(one.end <= two.start for one, two in itertools.pairwise(spans))
    assert "".join("".join(split(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("unit", [".", "。", '."', "\n", "|", "a", " ", "```\n", "#", "…", "1."])
def test_a_megabyte_of_hostile_text_takes_less_than_a_second(unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    started = time.process_time()
    sentences(text)
    key_passage(question_terms("费用 a 1"), text)
    assert time.process_time() - started < 2.0  # under 1 s on a quiet machine; quadratic would be minutes
