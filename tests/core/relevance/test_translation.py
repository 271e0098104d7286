import sqlite3
from pathlib import Path

import pytest

from core.relevance.translation import MOST_MEANINGS, TextWords, Translated, coverage, translated
from scripts.training.translations import pairs, write


def meanings(question: str) -> list[set[str]]:
    return [{" ".join(meaning) for meaning in word.meanings} for word in translated(question)]


@pytest.mark.parametrize(
    ("question", "meant"),
    [
        ("保修几年?", ["warranti"]),
        ("装修押金", ["renov", "deposit"]),
        ("How many days of annual leave?", ["年假"]),
        ("The warranty", ["保修"]),
        ("XL-200 的重量", ["weight", "xl-200"]),
        ("Does it take NFL cards?", ["nfl"]),
    ],
)
def test_a_question_is_put_into_the_words_of_the_other_language(question: str, meant: list[str]) -> None:
    assert set(meant) <= {meaning for word in meanings(question) for meaning in word}


def test_what_a_dictionary_has_as_one_is_no_two_words() -> None:
    """Discriminates: leave alone is 离开 and twenty others."""
    assert meanings("annual leave") == [{"年假"}]


def test_a_word_that_may_mean_anything_says_nothing() -> None:
    assert translated("time") == ()
    assert all(
        len(word.meanings) <= MOST_MEANINGS for word in translated("How much time does an order take?")
    )


def test_what_has_no_translation_is_left_out() -> None:
    assert translated("怎么除垢") == translated("") == translated("😀 ?!") == ()


def test_words_that_few_texts_have_weigh_more_and_half_a_meaning_counts_half() -> None:
    words = (
        Translated(1.0, (("machin",),)),
        Translated(1.0, (("process", "fee"), ("commiss",))),
    )
    texts = [TextWords("", {"machin"}), TextWords("", {"machin", "commiss"}), TextWords("", {"fee"})]
    first, second, third = coverage(words, texts)
    assert second == pytest.approx(1.0)
    assert 0 < third == pytest.approx(0.5 * (1 - first))
    assert first < 0.5


def test_a_chinese_word_is_found_within_others() -> None:
    (share,) = coverage((Translated(1.0, (("年假",), ("x3",))),), [TextWords("带薪年假十天", set())])
    assert share == 1.0


def test_the_dictionary_is_read_both_ways(tmp_path: Path) -> None:
    lines = [
        "# CC-CEDICT\n",
        "保修 保修 [bao3 xiu1] /guarantee; warranty/CL:個|个[ge4]/\n",
        "年假 年假 [nian2 jia4] /annual leave/New Year holidays (abbr.)/one that takes many other words/\n",
        "個 个 [ge4] /classifier/\n",  # one character is in too many words
        "什麼 什么 [shen2 me5] /what/\n",
        "張 张 [Zhang1] /surname Zhang/\n",
    ]
    found = set(pairs(lines))
    assert found == {
        ("保修", "guarante"), ("保修", "warranti"), ("年假", "annual leav"), ("年假", "new year holiday"),
    }  # fmt: skip
    assert write(found, tmp_path / "t.sqlite3") == 8
    rows = sqlite3.connect(tmp_path / "t.sqlite3").execute(
        "SELECT other FROM translation WHERE term = '年假'"
    )
    assert rows.fetchall() == [("annual leav",), ("new year holiday",)]
