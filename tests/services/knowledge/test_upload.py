from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadRequestError
from services.knowledge.upload import MAX_NAME_CHARS, base_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\x.md", "x.md"),
        ("/abs/x.md", "x.md"),
        ("C:\\x", "x"),
        ("C:x.md", "x.md"),
        ("退款 政策.md", "退款 政策.md"),
        ("cafe\u0301.md", "caf\u00e9.md"),
        ("conference.txt", "conference.txt"),
    ],
)
def test_only_the_base_name_is_kept(name: str, shown: str) -> None:
    assert base_name(name) == shown


@pytest.mark.parametrize(
    "name",
    ["a\0.md", "", " ", ".", "..", "a/..", "x" * 5_000, "CON.txt", "con", "Lpt1.md", "nul.tar.gz", "a\n.md",
     "dir/", "a\u2028.md"],
)  # fmt: skip
def test_an_unsafe_name_is_refused_and_the_field_reported(name: str) -> None:
    with pytest.raises(BadRequestError, match=r"^file:") as refused:
        base_name(name)
    assert refused.value.code == "invalid_request"


def test_characters_that_reorder_text_and_markup_are_kept_as_they_are() -> None:
    assert base_name("\u202egpj.md <img onerror=x>.md") == "\u202egpj.md <img onerror=x>.md"


@given(st.text(max_size=300))
def test_a_name_is_one_harmless_path_part_or_refused(name: str) -> None:
    try:
        shown = base_name(name)
    except BadRequestError:
        return
    assert 0 < len(shown) <= MAX_NAME_CHARS
    assert not set(shown) & set("/\\\0\n\r")
    assert shown.strip(". ")
    assert shown.encode()
    assert base_name(shown) == shown
