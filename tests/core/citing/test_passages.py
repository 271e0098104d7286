import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.citing.passages import presence, sentences
from core.relevance.sparse import question_terms


def split(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


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
    presence(question_terms("费用 a 1"), text)
    assert time.process_time() - started < 2.0  # under 1 s on a quiet machine; quadratic would be minutes
