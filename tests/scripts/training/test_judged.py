import random

from scripts.evaluation.baselines import Collection
from scripts.evaluation.sets import EvaluationSet, Line, Question
from scripts.training.judged import SMALL, bilingual, small


def line(line_id: str, scope: str = "") -> Line:
    return Line(line_id, f"text of {line_id}", scope)


def test_small_collections_contain_what_answers_their_questions() -> None:
    """Discriminates: gold that was assigned to another collection left in the question."""
    lines = tuple(line(str(at)) for at in range(60))
    questions = tuple(
        Question(f"q{at}", "?", gold={str(at): 1.0, str((at + 30) % 60): 2.0}) for at in range(60)
    )
    dealt = small([Collection("owner", lines, questions)], random.Random(1))
    assert [len(each.lines) for each in dealt] == [SMALL, SMALL, 60 - 2 * SMALL]
    assert len({each.owner for each in dealt}) == 3
    assert sorted(one.line_id for each in dealt for one in each.lines) == sorted(one.line_id for one in lines)
    for each in dealt:
        here = {one.line_id for one in each.lines}
        asked = {question.question_id for question in each.questions}
        assert all(question.gold and question.gold.keys() <= here for question in each.questions)
        assert asked == {question.question_id for question in questions if question.gold.keys() & here}
    original = {question.question_id: question.gold for question in questions}
    assert all(
        original[question.question_id][results] == relevance
        for each in dealt
        for question in each.questions
        for results, relevance in question.gold.items()
    )


PARALLEL = EvaluationSet(
    "pair",
    tuple(line(f"{scope}:{at}", scope) for scope in ("en", "zh") for at in range(20)),
    tuple(
        Question(f"{asked}>{scope}:{at}", "?", scope, gold={f"{scope}:{at}": 1.0})
        for asked in ("en", "zh")
        for scope in ("en", "zh")
        for at in range(20)
    ),
)


def test_a_bilingual_collection_has_each_text_in_one_language_and_its_answers() -> None:
    """Discriminates: keeping questions whose answer only exists in the other language."""
    both = bilingual(PARALLEL, random.Random(1))
    assert both is not None
    assert sorted(one.line_id.partition(":")[2] for one in both.lines) == sorted(map(str, range(20)))
    assert {one.scope for one in both.lines} == {"en", "zh"}
    here = {one.line_id for one in both.lines}
    assert {line_id for question in both.questions for line_id in question.gold} == here
    assert len(both.questions) == 40  # of either language, for each text


def test_a_set_that_is_not_parallel_has_no_bilingual_collection() -> None:
    lines = (line("en:1", "en"), line("other", "zh"))
    assert bilingual(EvaluationSet("one", lines, ()), random.Random(1)) is None
    unnamed = (line("1"), line("2"))
    assert bilingual(EvaluationSet("one", unnamed, ()), random.Random(1)) is None
