"""Question sets as read from disk, and a line as a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.text import scrub
from scripts.evaluation.baselines import collections_without_answers, whole_collections
from scripts.evaluation.knowledge import upload_of, usable_date
from scripts.evaluation.sets import BadSetError, EvaluationSet, Line, Question, load_set, sets_in, spread
from services.adapters.readers.documents import parse_document
from tests.support.environment import ROOT

SETS = ROOT / "tests" / "data" / "sets"


def test_a_set_is_read_with_the_history_of_each_question() -> None:
    data = load_set(SETS / "bakery", by="kind")
    followed = data.questions[1]
    assert [path.name for path in sets_in(SETS)] == [
        "bakery",
        "friends",
        "guide",
        "office",
        "rewrites",
        "tea",
    ]
    assert sets_in(SETS / "tea") == [SETS / "tea"]
    assert (data.is_memory, data.has_refusals, data.scopes) == (False, True, ["zh", "en"])
    assert (followed.previous, followed.last_answer) == (("生日蛋糕怎么买？",), "要预订。")
    assert followed.groups == ("follow-up",)
    assert dict(data.questions[3].gold) == {"e2": 2.0}  # rel 0 is not relevant


def test_passages_in_further_files_are_included_or_left_out(tmp_path: Path) -> None:
    for name, row in (("corpus", "a"), ("corpus_wide", "b"), ("corpus_wider", "c")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{row}", "text": "?"}}', encoding="utf-8")
    for name in ("queries.jsonl", "qrels.jsonl"):
        (tmp_path / name).touch()
    assert [line.line_id for line in load_set(tmp_path).lines] == ["a", "b", "c"]
    assert [line.line_id for line in load_set(tmp_path, narrow=True).lines] == ["a"]


def test_lines_with_a_position_in_a_conversation_are_its_turns() -> None:
    assert load_set(SETS / "friends").is_memory


@pytest.mark.parametrize("bad", ['{"id": "q1"}', "no JSON", '{"id": "q1", "text": "?", "history": [{}]}'])
def test_an_unreadable_row_is_named_by_file_and_line(tmp_path: Path, bad: str) -> None:
    for name in ("corpus.jsonl", "qrels.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "queries.jsonl").write_text(f'{{"id": "q0", "text": "?"}}\n{bad}\n', encoding="utf-8")
    with pytest.raises(BadSetError, match=r"queries\.jsonl line 2"):
        load_set(tmp_path)


def test_a_limit_takes_questions_from_all_over_the_set() -> None:
    questions = tuple(Question(str(number), "?") for number in range(10))
    assert [one.question_id for one in spread(questions, 3)] == ["0", "3", "6"]
    assert spread(questions, 10) == spread(questions, None) == questions


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("营业时间", "七点开门。"),
        ("C# and *that* [one](x) `now` #", "text"),
        ("1. first", "---\nnot: front matter\n---\n"),
        ("<b>bold</b> &amp; \\", "a | b\n--- | ---\n1 | 2"),
        ("", "# stays text"),
        ("T", "# Own heading\nunder it\n\nSetext\n======\n\n## last, with nothing under it"),
    ],
)
def test_no_word_of_a_line_is_lost_when_it_is_read_as_a_document(title: str, text: str) -> None:
    """Discriminates: a title or a heading in the text whose markup is not escaped."""
    upload = upload_of(Line("x", text, title=title), 1, "me")
    parsed = parse_document(upload.file_name, upload.content)
    if title:
        assert [section.heading for section in parsed.sections] == [(title,)]
    read = " ".join(f"{' '.join(section.heading)} {section.text}" for section in parsed.sections)
    for word in scrub(f"{title} {text}").split():
        assert word.strip("#=") in read, word


def test_an_invalid_or_distant_date_is_left_out() -> None:
    assert usable_date("2026-01-31") == "2026-01-31"
    for nonsense in ("", "2509-60-13", "2509-01-01", "0012-01-01", "last year", "2026-02-31"):
        assert usable_date(nonsense) == "", nonsense


def set_of(lines: list[Line], questions: list[Question], *, refusals: bool = False) -> EvaluationSet:
    return EvaluationSet("s", tuple(lines), tuple(questions), has_refusals=refusals)


def test_the_copies_without_answers_keep_every_other_document() -> None:
    """Discriminates: a copy that still has the gold document, or its twin."""
    lines = [Line("a", "A"), Line("a2", "A"), Line("b", "B"), Line("c", "C")]
    asked = [Question("1", "?", gold={"a": 1}), Question("2", "?", gold={"b": 1})]
    first, second = collections_without_answers(set_of(lines, asked))
    assert [line.line_id for line in first.lines] == ["b", "c"]
    assert [line.line_id for line in second.lines] == ["a", "a2", "c"]
    assert [one.question_id for one in (*first.questions, *second.questions)] == ["1", "2"]
    assert not any(one.answerable or one.gold for one in (*first.questions, *second.questions))
    assert len({first.owner, second.owner, whole_collections(set_of(lines, asked))[0].owner}) == 3


def test_a_set_that_has_unanswerable_questions_needs_no_copies() -> None:
    asked = [Question("1", "?", gold={"a": 1})]
    assert collections_without_answers(set_of([Line("a", "A"), Line("b", "B")], asked, refusals=True)) == []
