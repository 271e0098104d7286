from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.thinking.splitter import without_thinking

TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "a", "```\n", "答"]), max_size=12)


def test_tags_tell_what_is_left_out() -> None:
    assert without_thinking("<think>hm</think>\n\nThe fee is 300. ") == "The fee is 300."
    assert without_thinking("<think>never closed") == ""


def test_what_begins_in_thinking_is_left_out_up_to_the_closing_tag() -> None:
    assert without_thinking("hm</think> So.", begins_thinking=True) == "So."
    assert without_thinking("<think>hm</think> So.", begins_thinking=True) == "So."
    assert without_thinking("hm", begins_thinking=True) == ""


def test_a_wrong_guess_loses_nothing_unless_a_limit_cut_the_text() -> None:
    """Discriminates: an empty reply of a model that no longer thinks; half a thinking as the reply."""
    assert without_thinking(" The fee. ", begins_thinking=True, guessed=True) == "The fee."
    assert without_thinking("Hm, the", begins_thinking=True, guessed=True, cut=True) == ""
    assert without_thinking("The", guessed=True, cut=True) == "The"


def test_a_guess_that_a_tag_confirms_is_kept() -> None:
    assert without_thinking("<think>hm", begins_thinking=True, guessed=True) == ""
    assert without_thinking("hm</think>", begins_thinking=True, guessed=True) == ""


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("I reason\n</think>\nThe summary.", "The summary."),
        ("I reason\n </think > \n\nIt is.\n</think>\nSo.", "It is.\n</think>\nSo."),
        ("I reason\n</think>", ""),
        ("I reason <think>\n</think>\nThe summary.", "The summary."),
    ],
)
def test_a_closing_tag_alone_on_its_line_ends_thinking_that_nothing_opened(text: str, reply: str) -> None:
    """Discriminates: keeping what a streamed answer has to keep, since it was sent."""
    assert without_thinking(text, guessed=True) == reply


@pytest.mark.parametrize("text", ["The tag </think> ends it.\nSo.", "Write\n```\n</think>\n```\nat the end."])
def test_a_closing_tag_that_is_quoted_is_text(text: str) -> None:
    """Discriminates: cutting at any closing tag."""
    assert without_thinking(text, guessed=True) == text


def test_a_setting_is_not_overruled_by_the_text() -> None:
    """Discriminates: guessing for a model that is configured never to begin in thinking."""
    text = "One\n</think>\ntwo"
    assert without_thinking(text) == text


@given(TEXTS.map("".join), st.booleans(), st.booleans(), st.booleans())
def test_a_text_without_an_opening_tag_is_kept_or_left_out_from_its_beginning(
    text: str, begins: bool, guessed: bool, cut: bool
) -> None:
    """Discriminates: cutting at the last closing tag; trimming one way only."""
    text = text.replace("<think>", "")
    reply = without_thinking(text, begins, guessed=guessed, cut=cut)
    _, closing, after = text.partition("</think>")
    if closing and begins:
        assert reply == after.strip()
    elif closing:
        assert reply in (text.strip(), after.strip())
    else:
        assert reply == ("" if begins and (cut or not guessed) else text.strip())
