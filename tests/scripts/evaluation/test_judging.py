"""The judging of whole turns, compared with results by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.relevance.probability import SURE
from scripts.evaluation.judging import Hit, Reply, TurnQuestion, by_group, judge, load_questions, turns_table

RIGHT = Hit("d", 0.9, "Leave\n| L05 | maternity leave | `158` days |", "Leave", "leave.md", cited=True)
WRONG = Hit("e", 0.8, "Parking\nThe garage opens at six.", "Parking", "parking.md")


def asked(**fields: object) -> TurnQuestion:
    known = {
        "question": "How long?",
        "documents": ["leave.md"],
        "passage": "| L05 | maternity leave | 158 days |",
    }
    return TurnQuestion.model_validate(known | fields)


def replied(*sources: Hit, text: str = "From the documents: 158 days of maternity leave [1]") -> Reply:
    return Reply(text, sources)


@pytest.mark.parametrize(
    ("chance", "cited", "verdict"),
    [(SURE, True, "sure"), (SURE - 0.01, True, "closest"), (0.99, False, "refused")],
)
def test_the_sureness_of_an_answer_is_read_from_the_probabilities_of_its_sources(
    chance: float, cited: bool, verdict: str
) -> None:
    """Discriminates: reading it from the answer's words, or from passages that it does not use."""
    assert replied(Hit("d", chance, cited=cited), text="From the documents:").verdict == verdict
    assert Reply("Nothing.").verdict == "refused"


def test_a_passage_counts_whatever_markup_it_contains_but_only_in_its_own_document() -> None:
    outcome = judge(asked(), [WRONG, RIGHT], replied(RIGHT, WRONG))
    assert (outcome.first, outcome.among, outcome.cited, outcome.readable) == (False, True, True, None)
    assert not judge(asked(documents=["other.md"]), [RIGHT], replied(RIGHT)).first
    assert not judge(asked(), [RIGHT], replied(WRONG)).cited


def test_a_passage_may_be_in_the_prompt_without_being_cited() -> None:
    """Discriminates: what a model could have answered from, counted as what this answer quotes."""
    unused = judge(asked(), [RIGHT], replied(WRONG, replace(RIGHT, cited=False)))
    assert (unused.prompted, unused.cited) == (True, False)
    assert not judge(asked(), [RIGHT], replied(WRONG)).prompted


def test_every_fact_must_be_in_the_answer_in_one_of_its_alternatives() -> None:
    """Discriminates: one fact of two taken for the answer."""
    facts = [["158 days", "158 天"], ["maternity | leave"]]
    assert judge(asked(answers=facts), [], replied(text="> maternity **leave** `158` days [1]")).readable
    assert not judge(asked(answers=facts), [], replied(text="158 days [1]")).readable


def test_a_section_is_recognized_by_words_of_its_heading() -> None:
    question = asked(documents=[], passage="", sections=["Holidays", "Leave"])
    assert judge(question, [RIGHT], replied(RIGHT)).cited
    assert not judge(question, [WRONG], replied(WRONG)).first


def test_an_answer_is_in_the_language_that_can_be_quoted_and_a_refusal_in_the_question_s() -> None:
    chinese = asked(question="产假几天？", language="zh", answer_language="en")
    assert judge(chinese, [], replied(RIGHT)).in_language
    assert not judge(chinese, [], Reply("The documents hold nothing.")).in_language
    assert judge(asked(question="产假几天？"), [], Reply("没有找到。")).in_language


def test_shares_only_count_the_questions_they_apply_to() -> None:
    """Discriminates: unanswerable questions among the answerable ones, or None counted as wrong."""
    none = asked(answerable=False, kind="far")
    outcomes = [
        judge(asked(language="en"), [RIGHT], replied(RIGHT)),
        judge(asked(answers=[["158 days"]]), [WRONG], Reply("Nothing.")),
        judge(asked(passage="", kind="unjudged"), [WRONG], replied(RIGHT)),
        judge(none, [RIGHT], replied(RIGHT)),
        judge(none, [], Reply()),
    ]
    groups = by_group(outcomes)
    figures = groups[""]
    assert (figures.answerable, figures.first, figures.readable) == (3, 0.5, 0.0)
    assert figures.refused_wrongly == pytest.approx(1 / 3)
    assert (figures.unanswerable, figures.sure, figures.closest, figures.refused_rightly) == (
        2,
        0.5,
        0.0,
        0.5,
    )
    assert list(groups) == ["", "en", "far", "unjudged"]
    shown = turns_table([("hr", {"far": groups["far"]})]).splitlines()
    assert shown[2] == "| hr far | 0 | – | – | – | – | – | – | 2 | 0.500 | 0.000 | 0.500 | 1.000 |"


def test_questions_are_read_with_their_history_and_from_one_half(tmp_path: Path) -> None:
    rows = [
        '{"question": "a", "split": "dev", "passage": ["c", "d"], '
        '"history": [{"role": "user", "content": "b"}]}',
        '{"question": "e", "split": "held", "passage": ""}',
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    first, second = load_questions(tmp_path)
    assert (first.history[0].text, first.passage, second.is_judged) == ("b", ("c", "d"), False)
    assert load_questions(tmp_path, "dev") == (first,)
