"""Citations and the marks that name them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.citing.citations import (
    KnownDocuments,
    cite,
    claims,
    find_marks,
    known_documents,
    mark_cited,
    placed,
    without_marks,
)
from core.citing.passages import Span
from core.conversation.turns import Turn, TurnStatus
from core.knowledge import Candidate, Chunk
from core.prompt.fence import render_block
from tests.support.machine import at_most

COUNT = 5


def named(answer: str, count: int = COUNT) -> list[int]:
    return sorted({number for mark in find_marks(answer, count) for number in mark.numbers})


def candidate(text: str, key_passage: str = "") -> Candidate:
    chunk = Chunk("c", "d", "fees.md", text, 0, "Fees", 2, 10, 10 + len(text), "2026-01", "0123abcd")
    return Candidate(chunk, probability=0.123456, key_passage=key_passage, reason="why")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("每月 99 元 [1]。", [1]),
        ("每月 99 元[1][2]。", [1, 2]),
        ("It costs 99 yuan[3].", [3]),
        ("见 [1, 2] 和【3，4】", [1, 2, 3, 4]),
        ("So it is [1-3], [5].", [1, 2, 3, 5]),
        ("[2–4]", [2, 3, 4]),
        ("[4-5]", [4, 5]),
        ("So it is.[^1] And more.[^2][^3]", [1, 2, 3]),
        ("退款需要七天（来源 1）。", [1]),
        ("退款需要七天（见来源：2、3）。", [2, 3]),
        ("Refunds take a week (source 1) [Sources 2 and 4].", [1, 2, 4]),
        ("【资料4】", [4]),
        ("维生素C[1]，MAX_RECENT_TURNS[2]，GPT4[3]，1937[4]", [1, 2, 3, 4]),
        ("> a quoted line\n> and its end [2]", [2]),
        ("| fee | 99 [1] |\n", [1]),
        ("1. first [1]\n\n    goes on [2]\n", [1, 2]),
        ("`code` and [1] and ``a ` [3]`` end", [1]),
        ("根据[1]:如下", [1]),
    ],
)
def test_a_mark_is_recognised_in_every_form_models_write(answer: str, expected: list[int]) -> None:
    assert named(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[0] [6] [99] [2024] [1000]",
        "```\nx[1] = [2]\n```",
        "~~~python\n[1]\n``` [2]\n~~~",
        "```\n[1] never closed\n",
        "> ```\n> [1]\n> ```",
        "text:\n\n    indented [1]\n\n    code [2]\n",
        "`[1]` and ``[2] ` [3]``",
        "a[1] x[2], items_2[3], myList[4], f()[5], args[1]",
        "[1](https://example.com) ![2](image.png) [text][3]",
        "[1] is a link\n\n[1]: https://example.com",
        "a note[^1]\n\n[^1]: The model's own footnote.",
        "from [0, 1] to [0-5]",
        "in [1-100] and [3-1] and [2019-2023]",
        "m[i][2]",
        "\\[1\\] and \\[ 2 ]",
        "https://example.com/?ids[1]=2",
        "(1) and (2) and （3）",
        "[1.5] [a1] [1a] [ ]",
    ],
)
def test_text_that_only_looks_like_a_mark_is_not_one(answer: str) -> None:
    """Discriminates: dropping any one of the rules of `_stands_alone`, `_prose` or `_code_spans`."""
    assert named(answer) == []


def test_numbers_out_of_range_leave_the_others() -> None:
    assert named("[2, 9] and [7]", count=3) == [2]


@given(st.text(alphabet="[](){}1234590,-–^`~ \n\t>:=a_C源来（）【】来源.", max_size=300), st.integers(0, 9))
def test_marks_are_at_their_offsets_and_name_existing_sources_only(answer: str, count: int) -> None:
    end = 0
    for mark in find_marks(answer, count):
        assert end <= mark.start < mark.end <= len(answer)
        assert mark.numbers
        assert all(1 <= number <= count for number in mark.numbers)
        end = mark.end


@pytest.mark.parametrize(
    "unit",
    ["[", "[1", "[1]", "`", "```\n", "(source ", "[1,", "a[1] ", "\n", "[^1]:x\n", "`a``b", "    [1]\n\n"],
)
def test_marks_of_a_long_hostile_answer_are_found_in_linear_time(unit: str) -> None:
    answer = unit * (200_000 // len(unit))
    with at_most(2.0):
        claims(answer, list(find_marks(answer, 10)))


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("Two years [1]. By a service [2][3].", "Two years. By a service."),
        ("年费三百元【1】，见（来源 2）。", "年费三百元，见。"),
        (
            "Read `a[1]` and [9], but\n```\nrows [1]\n```\nthis [1-2]",
            "Read `a[1]` and [9], but\n```\nrows [1]\n```\nthis",
        ),
        ("Nothing cited.", "Nothing cited."),
    ],
)
def test_removing_the_marks_leaves_the_answers_text(answer: str, plain: str) -> None:
    assert without_marks(answer, 3) == plain
    assert without_marks(answer, 0) == answer


def test_a_claim_is_the_text_before_the_mark() -> None:
    answer = "开头。\n\n专业版每月 99 元[1]。退款七天[2][3]；\n\n\n团队版 [1]"
    words = claims(answer, list(find_marks(answer, COUNT)))
    assert words[1].split() == ["专业版每月", "99", "元", "团队版"]
    assert words[2] == words[3]
    assert "退款七天" in words[2]


def test_a_citation_stores_text_position_version_and_date() -> None:
    hits = candidate("前文。\U00020000 关键。后文。")
    citation = cite([hits], [Span(3, 8)])[0]
    assert citation.index == 1
    assert citation.key_passage == "\U00020000 关键。" == citation.text[3:8]
    assert (citation.passage_start, citation.passage_end) == (3, 8)
    assert (citation.version, citation.date, citation.score) == ("0123abcd", "2026-01", 0.1235)
    assert (citation.page, citation.heading, citation.char_start) == (2, "Fees", 10)


def test_the_judges_passage_wins_if_it_is_verbatim() -> None:
    chosen = cite(
        [candidate("One. Two.", "Two."), candidate("One. Two.", "Three.")], [Span(0, 4), Span(0, 4)]
    )
    assert [citation.key_passage for citation in chosen] == ["Two.", "One."]
    assert [citation.passage_start for citation in chosen] == [5, 0]


def test_without_a_passage_a_citation_has_the_whole_text_and_no_position() -> None:
    citation = cite([candidate("One. Two.")])[0]
    assert (citation.key_passage, citation.passage_start, citation.passage_end) == ("", None, None)


@pytest.mark.parametrize("answer", ["so [1][3].", "so [1, 3]."])
def test_citations_used_by_the_answer_are_marked(answer: str) -> None:
    """Discriminates: only the first number of a mark that names several."""
    offered = cite([candidate("a"), candidate("b"), candidate("c")])
    citations = mark_cited(offered, find_marks(answer, len(offered)))
    assert [citation.cited for citation in citations] == [True, False, True]


def test_a_position_that_does_not_hold_the_passage_is_dropped() -> None:
    right = cite([candidate("One. Two.")], [Span(5, 9)])[0]
    assert placed(right) == right
    wrong = placed(replace(right, passage_start=4))
    assert (wrong.passage_start, wrong.passage_end, wrong.key_passage) == (None, None, "Two.")
    assert placed(replace(right, passage_end=None)).passage_start is None


def test_deleted_and_changed_documents_are_distinguished() -> None:
    citation = cite([candidate("a")])[0]
    existing, other = KnownDocuments({"d": "0123abcdef"}), KnownDocuments({"d": "ffff"})
    assert (existing.lack(citation), existing.changed(citation)) == (False, False)
    assert (other.lack(citation), other.changed(citation)) == (False, True)
    assert (KnownDocuments().lack(citation), KnownDocuments().changed(citation)) == (True, False)
    assert not KnownDocuments().lack(replace(citation, document_id=""))
    assert not other.changed(replace(citation, version=""))
    assert not existing.changed(replace(citation, version="0123.2")), "only read again"


@given(st.floats(0, 1))
@example(0.084996)
def test_a_passage_is_shown_again_from_its_citation_as_it_was_sent(probability: float) -> None:
    """Discriminates: two digits of the probability in the prompt, of its four digits where it is shown."""
    sent = replace(candidate("Fees."), probability=probability)
    (citation,) = cite([sent])
    assert render_block(1, replace(sent, probability=citation.score), "1") == render_block(1, sent, "1")


async def test_documents_are_looked_up_once_for_all_turns_and_not_without_sources() -> None:
    """Discriminates: a look-up per turn, or one for a page without sources."""
    looks: list[list[str]] = []

    async def find(document_ids: list[str], owners: list[str]) -> KnownDocuments:
        looks.append(list(document_ids))
        return KnownDocuments({"d1": "f"})

    citations = cite([Candidate(Chunk(f"c{at}", f"d{at}", "a.md", "退款。", 0)) for at in range(3)])
    turn = Turn("t", "s", "me", "?", 1, TurnStatus.COMPLETED, sources=citations)
    bare = Turn("u", "s", "me", "?", 1, TurnStatus.COMPLETED)
    assert await known_documents(find, [bare, bare], ["me"]) == KnownDocuments()  # type: ignore[arg-type]
    results = await known_documents(find, [turn, bare, turn], ["me"])  # type: ignore[arg-type]
    assert looks == [["d0", "d1", "d2"]]
    assert [results.lack(each) for each in citations] == [True, False, True]
