"""Codes and versions in a question: only their rows are quoted, and a code that no passage has is
recognised."""

from __future__ import annotations

import pytest

from core.citing.quoting import Quotables
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms


def quoted(question: str, *texts: str) -> list[str]:
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    return [quote.text for quote in Quotables([("", text) for text in texts]).quotes(query, question)]


FAULTS = "| Code | What to do |\n|---|---|\n| {} | {} |\n| {} | {} |"
DOOR = FAULTS.format("F7", "If the fault appears again, call us", "Ub", "Wait")
DRAIN = FAULTS.format("E1", "Open the tap", "E2", "Clean the filter")


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("The fault E2 appears, what now?", ["- Code: E2; What to do: Clean the filter"]),
        ("E1 and Ub, what to do?", ["- Code: E1; What to do: Open the tap"]),
    ],
)
def test_a_row_that_begins_with_the_questions_code_is_quoted_first_and_alone(
    question: str, rows: list[str]
) -> None:
    """Discriminates: a row of another code that has more words, also from another part of the table."""
    assert quoted(question, DOOR, DRAIN) == rows
    quotables = Quotables([("", DOOR), ("", DRAIN)])
    assert quotables.others(question) == {0}
    assert quotables.others("What to do?") == set()


def test_the_row_with_the_code_is_quoted_first_from_any_passage() -> None:
    """Discriminates: rules on the subject in passages that rank before it."""
    rules = [f"Rule {at}: call us when a fault appears." for at in "abcd"]
    assert quoted("What to do when fault E2 appears?", *rules, DRAIN)[0].startswith("- Code: E2")


def test_a_code_missing_from_the_passages_is_recognised_if_rows_begin_with_similar_codes() -> None:
    """Discriminates: a paper size taken for a code; one of two codes, whose table may continue elsewhere."""
    quotables = Quotables([("", DOOR), ("", DRAIN)])
    assert quotables.unmentioned("What does E9 mean?") == ["E9"]
    assert quotables.unmentioned("E9 or E2?") == quotables.unmentioned("Which fault?") == []
    assert Quotables([("", "Print it on paper.")]).unmentioned("On A4?") == []
    errors = Quotables([("", FAULTS.format("QP-4033", "Add the address", "QP-4040", "Wait"))])
    assert errors.unmentioned("What is QP-4999?") == ["QP-4999"]
    manual = Quotables([("", "The HX-160 forms sheet metal; see DIN-4711 and room 3.")])
    assert manual.unmentioned("How loud is the HX-200?") == ["HX-200"]
    assert manual.unmentioned("How loud is the TX-200?") == manual.unmentioned("Is 3500 enough?") == []
    assert manual.unmentioned("How loud is the HX160?") == []
    rows = "| Weekend | C1 | 4,280 |\n| Solo | C2 | 80 on A4 |"
    courses = Quotables([("", f"| Course | Class | Fee |\n| --- | --- | --- |\n{rows}")])
    assert courses.unmentioned("What does A1 cost?") == ["A1"]
    assert courses.unmentioned("What does C1 cost?") == []
    probes = Quotables([("", "The TH-215-E measures down to -139 °F.")])
    assert probes.unmentioned("What does the TH-999-W measure?") == ["TH-999-W"]


def test_a_missing_code_is_named_although_another_kind_of_code_is_known() -> None:
    """Discriminates: the device's name, which the passages have, hides that its alarm is unknown."""
    furnace = Quotables([("Furnace TF-3", "- Alarm A1: thermocouple broken.\n- Alarm A3: no cooling water.")])
    assert furnace.unmentioned("alarm A5 on tf-3") == ["A5"]
    assert furnace.unmentioned("alarm A3 on tf-3") == furnace.unmentioned("A5 or A3 on tf-3?") == []


@pytest.mark.parametrize(
    ("question", "is_of_it"),
    [
        ("How do I fix it?", True),
        ("它怎么处理", True),
        ("And the other one like it?", False),
        ("And now?", False),
    ],
)
def test_a_follow_up_refers_to_the_code_of_the_previous_question(question: str, is_of_it: bool) -> None:
    """Discriminates: quoting the whole table; the previous code although the question names another."""
    asked = f"What is E2? {question}"
    forms = tuple(QueryForm(text, [], SparseTerms([], [])) for text in (question, asked))
    quotes = Quotables([("", DRAIN)]).quotes(Query(question, forms), asked)
    assert ([quote.text for quote in quotes] == ["- Code: E2; What to do: Clean the filter"]) is is_of_it


def test_a_version_missing_from_the_passages_is_recognised_if_notes_of_others_exist() -> None:
    notes = Quotables([("Notes > 3.7.0 (June)", "New: clones."), ("", "Version 3.6.1\nFixed: the clock.")])
    assert notes.unmentioned("What was changed in version 3.9?") == ["3.9"]
    assert notes.unmentioned("What was changed in version 3.6?") == []
    assert Quotables([("", "Install it.")]).unmentioned("Does it run on version 3.9?") == []


def test_only_the_matching_row_is_quoted_not_those_sharing_words_of_its_columns() -> None:
    """Discriminates: quoting a whole short passage for two of its rows, one of which is another branch's."""
    rows = "| Harrogate | 3 Station Parade | 070 |\n| Manchester | Desk 9 | 099 |"
    stations = (
        f"| Station | Address | Phone |\n|---|---|---|\n{rows}\n\nOn bank holidays the stations are closed."
    )
    assert quoted("phone number of the Harrogate branch", stations) == [
        "- Station: Harrogate; Address: 3 Station Parade; Phone: 070"
    ]
