"""The metrics compared with values worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from scripts.evaluation.figures import (
    Answer,
    Passages,
    above,
    passages,
    passages_table,
    quantile,
    refusal,
    retrieval,
    separation,
    top_calibration,
)
from scripts.evaluation.knowledge import upload_of
from scripts.evaluation.sets import BadSetError, Question, load_set, plain
from tests.support.environment import ROOT


def answer(
    *ranked: tuple[str, float], gold: dict[str, float] | None = None, answerable: bool = True
) -> Answer:
    return Answer(Question("q", "?", gold=gold or {}, answerable=answerable), ranked)


def test_recall_is_the_fraction_of_relevant_documents_and_the_gain_is_the_grade() -> None:
    """Discriminates: recall as hit-or-miss, and a gain of 1 for every grade."""
    figures = retrieval([answer(("x", 0.9), ("a", 0.8), ("b", 0.7), gold={"a": 2, "b": 1, "c": 1, "d": 1})])
    assert figures is not None
    assert (figures.recall_1, figures.recall_5, figures.recall_10) == (0.0, 0.5, 0.5)
    gained = 2 / math.log2(3) + 1 / math.log2(4)
    best = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert figures.ndcg_10 == pytest.approx(gained / best)
    assert figures.mrr_10 == 0.5


def test_a_document_named_twice_counts_once_and_takes_one_rank() -> None:
    """Discriminates: ranks that count the repetition."""
    figures = retrieval([answer(("x", 0.9), ("x", 0.8), ("a", 0.7), gold={"a": 1})])
    assert figures is not None
    assert figures.mrr_10 == 0.5


def test_documents_below_the_tenth_rank_do_not_count() -> None:
    ranked = [(str(place), 1 / place) for place in range(1, 12)]
    figures = retrieval([answer(*ranked, gold={"11": 1}), answer(gold={"a": 1})])
    assert figures is not None
    assert (figures.questions, figures.recall_10, figures.ndcg_10, figures.mrr_10) == (2, 0, 0, 0)


def test_what_reaches_the_threshold_is_shown() -> None:
    """Discriminates: the whole list although none of it is shown."""
    ranked = answer(("a", 0.04), ("b", 0.3), gold={"a": 1, "b": 1})
    assert [each.ranked for each in above([ranked], 0.1)] == [[("b", 0.3)]]
    weak = answer(("a", 0.06), ("b", 0.09), gold={"a": 1})
    assert [each.ranked for each in above([weak], 0.1)] == [[]]
    figures = retrieval(above([ranked], 0.1))
    assert figures is not None
    assert figures.recall_10 == 0.5


def test_only_answerable_questions_with_judged_documents_are_scored() -> None:
    assert retrieval([answer(("a", 1.0)), answer(("a", 1.0), gold={"a": 1}, answerable=False)]) is None


def test_refusing_is_the_positive_class() -> None:
    """Two of three unanswerable questions and one of two answerable ones are refused."""
    asked = [
        answer(("a", 0.9)), answer(("a", 0.1)),
        answer(("a", 0.3), answerable=False), answer(("a", 0.1), answerable=False), answer(answerable=False),
    ]  # fmt: skip
    figures = refusal(asked, 0.2)
    assert figures is not None
    assert (figures.refused_wrongly, figures.refused_rightly) == pytest.approx((1 / 2, 2 / 3))
    assert figures.balanced_accuracy == pytest.approx((1 / 2 + 2 / 3) / 2)
    # of the six pairs .9 wins three; .1 loses to .3, ties with .1, beats an empty result
    assert separation(asked) == pytest.approx((3 + 0 + 0.5 + 1) / 6)


def test_refusal_needs_questions_of_both_kinds() -> None:
    assert refusal([answer(("a", 0.9))], 0.2) is None
    assert separation([answer(("a", 0.9))]) is None


def test_calibration_compares_the_best_probability_with_the_relevance_of_that_document() -> None:
    asked = [
        answer(("a", 0.85), gold={"a": 1}), answer(("b", 0.85), gold={"a": 1}),
        answer(("a", 0.25), gold={"a": 1}, answerable=False),
        answer(("a", 0.5)),  # answerable, but without a known document
    ]  # fmt: skip
    # bin .8–.9: |1.7 − 1|, bin .2–.3: |.25 − 0|; of three questions
    assert top_calibration(asked) == pytest.approx((0.7 + 0.25) / 3)


def test_the_best_score_need_not_be_first() -> None:
    assert answer(("a", 0.2), ("b", 0.6)).best == ("b", 0.6)
    assert answer().best == ("", 0.0)


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.99) == 0.0


GUIDES = ROOT / "benchmarks" / "sets" / "guides"
LONG = "字" * 2_000


def asked(*chunks: str, phrases: tuple[str, ...] = ("十五天",), answerable: bool = True) -> Answer:
    return Answer(Question("q", "?", answerable=answerable, phrases=phrases), [], chunks=chunks)


def test_a_phrase_is_searched_in_the_first_chunk_the_first_five_and_a_token_budget() -> None:
    """Discriminates: larger chunks counted as better because they contain more."""
    assert passages([asked("年假十五天", LONG)]) == Passages(1, 1.0, 1.0, (1.0, 1.0, 1.0), 802)
    results = passages([asked("无", "年假十五天"), asked(LONG, "年假十五天"), asked(*("无",) * 5, "十五天")])
    assert results is not None
    assert (results.questions, results.first, round(results.five, 2)) == (3, 0.0, 0.67)
    assert [round(share, 2) for share in results.rooms] == [0.67, 0.67, 1.0]


def test_white_space_and_markdown_markup_do_not_hide_a_phrase() -> None:
    results = passages([asked("| `PORT` | 8000 |", phrases=(plain("PORT | 8000"),)), asked("无")])
    assert results is not None
    assert results.first == 0.5


def test_questions_without_a_phrase_give_no_figure() -> None:
    assert passages([asked("年假", phrases=()), asked("年假十五天", answerable=False)]) is None


def test_the_table_has_a_line_per_set_with_phrases() -> None:
    shown = passages_table([("a", passages([asked("十五天")])), ("b", None)])
    assert shown.splitlines()[2:] == ["| a | 1 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 3 |"]


def test_a_document_may_be_a_separate_file_and_answers_it_does_not_contain_are_left_out(
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
    """If a guide is rewritten, update its questions: the phrase, or the question."""
    data = load_set(GUIDES)
    lost = [question.text for question in data.questions if not question.phrases]
    assert len(lost) <= len(data.questions) // 10, lost
    assert len(data.questions) >= 60
