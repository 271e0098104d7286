from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.evaluation.figures import Answer
from scripts.evaluation.knowledge import upload_of
from scripts.evaluation.passages import Passages, passages, passages_table
from scripts.evaluation.sets import BadSetError, Question, load_set, plain
from tests.support.servers.server import ROOT

GUIDES = ROOT / "benchmarks" / "sets" / "guides"
LONG = "字" * 2_000


def asked(*chunks: str, phrases: tuple[str, ...] = ("十五天",), answerable: bool = True) -> Answer:
    return Answer(Question("q", "?", answerable=answerable, phrases=phrases), [], chunks=chunks)


def test_a_phrase_is_looked_for_in_the_first_chunk_the_first_five_and_a_room_of_tokens() -> None:
    """Discriminates: larger chunks counted as better because they hold more."""
    assert passages([asked("年假十五天", LONG)]) == Passages(1, 1.0, 1.0, (1.0, 1.0, 1.0), 802)
    results = passages([asked("无", "年假十五天"), asked(LONG, "年假十五天"), asked(*("无",) * 5, "十五天")])
    assert results is not None
    assert (results.questions, results.first, round(results.five, 2)) == (3, 0.0, 0.67)
    assert [round(share, 2) for share in results.rooms] == [0.67, 0.67, 1.0]


def test_white_space_and_marks_of_markdown_do_not_hide_a_phrase() -> None:
    results = passages([asked("| `PORT` | 8000 |", phrases=(plain("PORT | 8000"),)), asked("无")])
    assert results is not None
    assert results.first == 0.5


def test_questions_that_are_after_no_phrase_say_nothing() -> None:
    assert passages([asked("年假", phrases=()), asked("年假十五天", answerable=False)]) is None


def test_the_table_has_a_line_per_set_that_was_asked_for_phrases() -> None:
    shown = passages_table([("a", passages([asked("十五天")])), ("b", None)])
    assert shown.splitlines()[2:] == ["| a | 1 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 3 |"]


def test_a_document_may_be_a_file_of_its_own_and_answers_it_does_not_have_are_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "manual.md").write_text("# 手册\n\n年假 `十五` 天。\n", encoding="utf-8")
    rows = {
        "corpus": {"id": "m", "file": "manual.md"},
        "queries": {"id": "q", "text": "年假几天？", "answers": ["年假十五天", "十六天"]},
        "qrels": {"query_id": "q", "doc_id": "m", "rel": 1},
    }
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    data = load_set(tmp_path)
    assert data.questions[0].phrases == ("年假十五天",)
    upload = upload_of(data.lines[0], 7, "owner")
    assert (upload.file_name, upload.content.decode()) == ("7.md", "# 手册\n\n年假 `十五` 天。\n")
    (tmp_path / "manual.md").unlink()
    with pytest.raises(BadSetError, match=r"manual\.md cannot be read"):
        load_set(tmp_path)


def test_the_questions_about_our_own_guides_can_still_be_answered_by_them() -> None:
    """A guide that is rewritten takes its questions along: change the phrase, or the question."""
    data = load_set(GUIDES)
    lost = [question.text for question in data.questions if not question.phrases]
    assert len(lost) <= len(data.questions) // 10, lost
    assert len(data.questions) >= 60
