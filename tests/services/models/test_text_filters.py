from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadRequestError, StartRefusedError, WenmaiError
from services.models.text_filters import WordList, WordMask, load_answer_filters, load_question_filters

HERE = "tests.support.models.text_filters"


def paths(*names: str) -> list[str]:
    return [f"{HERE}:{name}" for name in names]


def test_question_filters_are_applied_in_order() -> None:
    """The result is normalised again. Discriminates: the reverse order; no normalisation afterwards."""
    assert load_question_filters(paths("shout", "signed"))("hello") == "HELLO\n\nsigned"
    assert load_question_filters(paths("signed", "shout"))("hello") == "HELLO\n\nSIGNED"
    assert load_question_filters([])(" as it is ") == "as it is"


def test_a_value_error_refuses_the_question_with_its_message() -> None:
    """Discriminates: treating it as a fault."""
    with pytest.raises(BadRequestError, match=r"^question: Names are not allowed here\.$") as caught:
        load_question_filters(paths("refuse"))("Who is Li Wei?")
    assert caught.value.code == "question_refused"


@pytest.mark.parametrize("name", ["crash", "undecodable", "wrong_answer"])
def test_a_broken_filter_lets_nothing_pass_and_reveals_nothing(name: str) -> None:
    """Discriminates: continuing with the unfiltered text; a UnicodeError, which is a ValueError too."""
    with pytest.raises(WenmaiError) as caught:
        load_question_filters(paths(name))("Who?")
    assert (caught.value.code, "secret" in str(caught.value)) == ("internal", False)


@pytest.mark.parametrize("name", ["two_arguments", "later", "__doc__", "none_such"])
def test_a_question_filter_of_the_wrong_kind_refuses_the_start(name: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^QUESTION_FILTERS: .*") as caught:
        load_question_filters(paths(name))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["NeedsArgument", "NoFlush", "CannotBeMade", "shout", "NoneSuch"])
def test_an_answer_filter_of_the_wrong_kind_refuses_the_start(name: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^ANSWER_FILTERS: .*"):
        load_answer_filters(paths(name))


def test_a_missing_or_broken_module_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_filters.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StartRefusedError, match="ZeroDivisionError"):
        load_question_filters(["broken_filters:function"])
    with pytest.raises(StartRefusedError, match="No module named"):
        load_answer_filters(["no_such_filters:Class"])


@given(st.text(st.sampled_from("a1 \r\n2x"), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_answer_filters_work_with_any_split_of_the_text(text: str, cuts: list[int]) -> None:
    """Each answer has its own. Discriminates: not flushing one filter into the next; shared state."""
    make = load_answer_filters(paths("HideNumbers", "HoldAll"))
    assert make is not None
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    by_pieces, whole = make(), make()
    words = "".join([by_pieces.feed(text[a:b]) for a, b in itertools.pairwise(edges)])
    assert words + by_pieces.flush() == whole.feed(text) + whole.flush()
    assert "\r" not in words


def test_text_held_back_by_one_filter_passes_through_the_next() -> None:
    make = load_answer_filters(paths("HideNumbers", "HoldAll"))
    assert make is not None
    chain = make()
    assert chain.feed("fee 30") + chain.feed("0") == ""
    assert chain.flush() == " [fee #]\n "


def test_without_answer_filters_none_are_created() -> None:
    assert load_answer_filters([]) is None


def test_a_broken_answer_filter_ends_the_answer() -> None:
    make = load_answer_filters(paths("CrashesOnX"))
    assert make is not None
    chain = make()
    assert chain.feed("abc") == "abc"
    with pytest.raises(WenmaiError, match="filter"):
        chain.feed("x")


# The filters shipped with the product.


def word_list(folder: Path, *lines: str) -> Path:
    path = folder / "words.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        ("Tell me of Project Falcon.", True),
        ("tell me of project FALCON", True),
        ("天鹅计划是什么？", True),
        ("What is a class?", False),
        ("What is an ass?", True),
        ("# no word", False),
    ],
)
def test_a_question_with_a_blocked_word_is_refused_without_repeating_it(
    tmp_path: Path, question: str, refused: bool
) -> None:
    """Discriminates: matching a word within another; taking a comment for a word."""
    words = word_list(tmp_path, "# no word", "", "project falcon", "天鹅计划", "ass")
    ask = load_question_filters([], words)
    if not refused:
        assert ask(question) == question
        return
    with pytest.raises(BadRequestError) as caught:
        ask(question)
    assert caught.value.code == "question_refused"
    assert "falcon" not in str(caught.value).lower()
    assert ("这台服务器不接受" in str(caught.value)) == (not question.isascii()), "in the reader's language"


@given(st.text(st.sampled_from("abc天鹅计划 "), max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_blocked_words_are_masked_wherever_a_stream_splits_them(text: str, cuts: list[int]) -> None:
    """Discriminates: the shorter of two with the same beginning; a word whose second half comes later."""
    words = WordList(re.compile("天鹅计划|天鹅|(?<![A-Za-z0-9_])ab(?![A-Za-z0-9_])"), 4)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    mask = WordMask(words)
    passed = "".join([mask.feed(text[a:b]) for a, b in itertools.pairwise(edges)]) + mask.flush()
    assert passed == words.pattern.sub(lambda match: "*" * len(match[0]), text)


def test_a_word_list_masks_after_the_deployments_own_filters(tmp_path: Path) -> None:
    make = load_answer_filters(paths("HoldAll"), word_list(tmp_path, "held"))
    assert make is not None
    chain = make()
    chain.feed("it is held")
    assert "****" in chain.flush()


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_word_list_that_cannot_be_read_refuses_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StartRefusedError, match=r"^BLOCKED_WORDS: .*words\.txt"):
        load_answer_filters([], path)


@given(st.lists(st.integers(0, 60), max_size=6))
def test_code_fence_lines_are_removed_and_the_code_is_kept(cuts: list[int]) -> None:
    text = "Run:\n```python\nprint('a`b')\n   ~~~\n````\n`x` and ``` here\n```"
    make = load_answer_filters(["services.models.text_filters:CodeFences"])
    assert make is not None
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chain = make()
    passed = "".join([chain.feed(text[a:b]) for a, b in itertools.pairwise(edges)]) + chain.flush()
    assert passed == "Run:\nprint('a`b')\n````\n`x` and ``` here\n"
