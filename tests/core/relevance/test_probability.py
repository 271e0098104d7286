import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import RetrievalSettings
from core.knowledge import Candidate, Chunk, FormMatch
from core.relevance.features import ABSOLUTE_FEATURES, FEATURES, QUESTION_FEATURES, Features
from core.relevance.meaning import QuestionTokens, with_parts
from core.relevance.probability import (
    PIECE_SHARE,
    SURE,
    Coefficients,
    Feature,
    Linear,
    Together,
    apply_threshold,
    judge,
    load_coefficients,
    probabilities,
)
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from tests.support.machine import at_most

E5 = load_coefficients("multilingual-e5-small")
ANY = load_coefficients("any")
THRESHOLD = RetrievalSettings().rerank_score_threshold
SETS = ("cmrc2018", "drcd", "mtrag", "mtragun", "xquad")
FOLDERS = ("clinic_mixed", "devteam_mixed", "hr_zh", "product_en", "shop_mixed")


def ask(question: str, *previous: str, last_answer: str = "") -> Query:
    wordings = [question, *(f"{text} {question}" for text in previous)]
    forms = tuple(QueryForm(text, [], encode_query(text)) for text in wordings)
    return Query(question, forms, previous, last_answer)


def candidate(text: str, rank: int = 1, dense: float | None = 0.8, heading: str = "") -> Candidate:
    match = FormMatch(dense, rank, 5.0 / rank, rank)
    chunk = Chunk(f"chunk-{rank}", "d", "f", text, 0, heading)
    return Candidate(chunk, dense, match.sparse, rank, rank, 1 / (60 + rank), (match,))


def plain(name: str, coefficient: float = 1.0) -> Linear:
    return Linear(0.0, (Feature(name, coefficient, 0.0, 1.0),))


def test_a_linear_model_standardises_features_by_name() -> None:
    """Discriminates: a forgotten mean or scale; columns taken in the order of the coefficients."""
    model = Linear(0.5, (Feature("b", 2.0, 1.0, 4.0), Feature("a", -1.0, 0.0, 0.5)))
    rows = np.array([[0.0, 1.0], [1.0, 3.0]])
    assert model.of(rows, ("a", "b")).tolist() == [0.5, 0.5 + 1.0 - 2.0]


def test_a_candidate_is_compared_with_the_best_and_all_share_the_question_term() -> None:
    """Discriminates: the distance from the mean instead of the best; `best` and `question` swapped."""
    together = Together(intercept=0.1, behind_best=2.0, best=0.5, question=3.0)
    assert together.of(np.array([1.0, 4.0]), 0.2).tolist() == pytest.approx(
        [0.1 - 2 * 3 + 0.5 * 4 + 0.6, 0.1 + 0.5 * 4 + 0.6]
    )


def test_the_probability_is_the_logistic_of_the_sum() -> None:
    coefficients = Coefficients("x", plain("near"), plain("overlap"), Together(0.0, 1.0, 1.0, 1.0))
    rows = np.zeros((2, len(FEATURES)))
    rows[:, FEATURES.index("near")] = [1.0, 0.0]
    question = np.zeros(len(QUESTION_FEATURES))
    question[QUESTION_FEATURES.index("overlap")] = 0.5
    assert probabilities(rows, question, coefficients) == pytest.approx(
        [1 / (1 + np.exp(-1.5)), 1 / (1 + np.exp(-0.5))]
    )
    vast = probabilities(rows * 1e9, question, coefficients)
    assert ((vast >= 0) & (vast <= 1)).all()


def test_a_candidate_that_contains_the_question_is_more_probable() -> None:
    results = judge(
        ask("专业版每月的费用是多少？"),
        [candidate("专业版每月的费用是九十九元。", 1, 0.9), candidate("回收站保留三十天。", 2, 0.8)],
        E5,
    )
    assert results[0].probability > 0.5 > 0.2 > results[1].probability


def test_the_order_is_that_of_the_reranker() -> None:
    listed = [candidate("无关", 1), candidate("费用是九十九元", 2)]
    assert [item.chunk for item in judge(ask("费用"), listed, E5)] == [item.chunk for item in listed]
    assert judge(ask("费用"), [], E5) == []


def test_an_unknown_embedding_is_judged_without_absolute_cosines() -> None:
    """Discriminates: falling back to the coefficients of another embedding."""
    other = load_coefficients("some/other-model")
    used = {feature.name for model in (other.candidate, other.question) for feature in model.features}
    assert used
    assert not used & set(ABSOLUTE_FEATURES)
    listed = [candidate("专业版费用", 1, 0.9), candidate("回收站", 2, 0.8)]
    lower = [_lowered(item, 0.5) for item in listed]
    query = ask("专业版费用")
    before = [item.probability for item in judge(query, listed, other)]
    assert [item.probability for item in judge(query, lower, other)] == pytest.approx(before)


def _lowered(item: Candidate, by: float) -> Candidate:
    matches = tuple(replace(match, dense=(match.dense or 0.0) - by) for match in item.matches)
    return replace(item, dense=(item.dense or 0.0) - by, matches=matches)


def shipped(name: str) -> Any:
    return json.loads((files("core.relevance") / "coefficients" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["multilingual-e5-small", "any"])
def test_shipped_coefficients_state_their_origin(name: str) -> None:
    content = shipped(name)
    assert content["embedding"] == name
    assert {feature["name"] for feature in content["candidate"]["features"]} <= set(FEATURES)
    assert {feature["name"] for feature in content["question"]["features"]} <= set(QUESTION_FEATURES)
    assert {*SETS, *FOLDERS} == {*content["trained_on"]} == {*content["figures_held_out"]}


def test_there_is_a_level_for_every_pair_of_languages() -> None:
    """Discriminates: one level per language, whatever the question's. Across languages no text is as near."""
    assert {*E5.levels} == {(asked, text) for asked in (True, False) for text in (True, False)}
    assert all(E5.levels[asked, asked].mean > E5.levels[asked, not asked].mean for asked in (True, False))
    assert not ANY.levels


@pytest.mark.parametrize(("name", "separation"), [("multilingual-e5-small", 0.87), ("any", 0.82)])
def test_shipped_coefficients_kept_their_promise_on_unseen_collections(name: str, separation: float) -> None:
    """The figures of each set and folder come from coefficients fitted without it."""
    figures = shipped(name)["figures_held_out"]
    assert all(each["calibration_error"] <= 0.1 for each in figures.values())
    assert np.mean([each["calibration_error"] for each in figures.values()]) <= 0.05
    assert np.mean([figures[each]["refusal_auroc"] for each in SETS]) >= separation
    assert all(figures[each]["ndcg10"] >= figures[each]["ndcg10_fused"] - 0.005 for each in SETS)
    folders = [figures[each] for each in FOLDERS]  # of 27 questions each
    assert np.mean([each["ndcg10"] - each["ndcg10_fused"] for each in folders]) >= 0.01


@pytest.mark.parametrize("name", ["multilingual-e5-small", "any"])
def test_the_shipped_reliability_diagram_is_that_of_probabilities(name: str) -> None:
    bins = shipped(name)["reliability_held_out"]
    assert [each["at"] for each in bins] == sorted(each["at"] for each in bins)
    assert all(each["at"] <= each["promised"] <= each["at"] + 0.1 for each in bins)
    crowded = [each for each in bins if each["candidates"] >= 200]
    # more answers are right than promised: the diagram counts every question once, and most are easy
    assert all(-0.05 <= each["right"] - each["promised"] <= 0.35 for each in crowded)


def test_the_threshold_keeps_the_best_in_order() -> None:
    listed = [replace(candidate("x", rank), probability=p) for rank, p in enumerate((0.9, 0.2, 0.1, 0.09), 1)]
    assert apply_threshold(listed, 0.2, 10, "Which fee?") == listed[:3]
    assert apply_threshold(listed, 0.2, 2, "Which fee?") == listed[:2]
    assert apply_threshold(listed, 0.0, 10, "Which fee?") == listed
    assert apply_threshold([], 0.2, 10, "Which fee?") == []


def test_a_two_part_question_keeps_the_best_passage_of_each_part() -> None:
    """Discriminates: one minimum for all, which the answer to the second part does not reach."""
    listed = [replace(candidate("x", rank), probability=p) for rank, p in enumerate((0.9, 0.06, 0.04), 1)]
    assert apply_threshold(listed, 0.2, 10, "Which fee?") == listed[:1]
    assert apply_threshold(listed, 0.2, 10, "体检报告能代拿吗？寄到外省多少钱？") == listed[:2]
    assert apply_threshold(listed[1:], 0.2, 10, "体检报告能代拿吗？寄到外省多少钱？") == []


def test_if_no_candidate_reaches_the_threshold_nothing_is_kept() -> None:
    """Discriminates: half the threshold for every candidate."""
    listed = [replace(candidate("x", rank), probability=p) for rank, p in enumerate((0.19, 0.15), 1)]
    assert apply_threshold(listed, 0.2, 10, "Which fee?") == []


TEXT = st.text(max_size=60)
COSINE = st.none() | st.floats(-1, 1)
RANK = st.none() | st.integers(1, 20)
MATCH = st.builds(FormMatch, COSINE, RANK, st.floats(0, 100), RANK)
ROW = st.tuples(TEXT, COSINE, RANK, st.lists(MATCH, max_size=3))


@given(TEXT, st.lists(TEXT, max_size=2), TEXT, st.lists(ROW, max_size=6), st.sampled_from([E5, ANY]))
def test_any_candidates_get_a_probability_and_keep_their_order(
    question: str,
    previous: list[str],
    answer: str,
    rows: Sequence[tuple[str, float | None, int | None, list[FormMatch]]],
    coefficients: Coefficients,
) -> None:
    """Discriminates: judging sorted candidates; a NaN from a question without words or from a single
    candidate."""
    listed = [
        Candidate(Chunk(str(at), "d", "f", text, 0), dense, None, rank, None, 0.0, tuple(matches))
        for at, (text, dense, rank, matches) in enumerate(rows)
    ]
    judged = judge(ask(question, *previous, last_answer=answer), listed, coefficients)
    assert all(0.0 <= item.probability <= 1.0 for item in judged)
    assert [replace(item, probability=0.0) for item in judged] == listed


def test_twenty_candidates_take_a_few_milliseconds() -> None:
    text = "专业版每月的费用是九十九元，按年付费可以打折。回收站里的文件保留三十天。团队版需要五人起购。" * 8
    query = ask("问脉专业版每个月的费用是多少？", "团队版支持吗", last_answer=text)
    listed = [candidate(text[rank:], rank, heading="云盘指南 > 费用") for rank in range(1, 21)]
    judge(query, listed, E5)
    with at_most(15 * 0.02):  # the goal is 5 ms on a quiet machine; this catches anything that is not linear
        for _ in range(15):
            judge(query, listed, E5)


STANDS = candidate("The second gate is far apart from the first: ten days on foot.", 1, 0.87)
LEANS = candidate("Hepatitis A vaccine: the second dose is given after 6 months.", 2, 0.85)


def test_a_terse_follow_up_is_also_judged_with_the_previous_question() -> None:
    """Discriminates: using only its own two words, which another text has."""
    asked = ask("How far apart?", "Which doses of the hepatitis A vaccine are there?")
    beside = [replace(each, matches=(each.matches[0], FormMatch(0.8 + 0.05 * at, 2 - at, 1.0 + at, 2 - at)))
              for at, each in enumerate((STANDS, LEANS))]  # fmt: skip
    before, after = judge(asked, beside, E5)
    assert after.probability > 2 * before.probability
    standing = replace(asked, question="How far apart are the gates of the zoo?")
    before, after = judge(standing, beside, E5)
    assert before.probability < after.probability < 2 * before.probability


def test_a_follow_up_prefers_a_text_that_has_the_last_answer() -> None:
    """Discriminates: ignoring the last answer's words; using them for every question, whatever its
    subject."""
    lost = candidate("After 45 days an item counts as lost; its price and 18 pounds are billed.", 2, 0.85)
    texts = [candidate("A lost card is replaced for 12 pounds.", 1, 0.85), lost]
    gains = []
    for question in ("What do I pay in that case?", "Which documents must an undergraduate bring to enrol?"):
        without = judge(ask(question, "What if I keep a book?"), texts, E5)
        answered = ask(question, "What if I keep a book?", last_answer="After 45 days it counts as lost.")
        with_answer = judge(answered, texts, E5)
        shares = [after.probability / before.probability for before, after in (without, with_answer)]
        gains.append(shares[1] / shares[0])
    assert gains[0] > 1.2 * gains[1] > 1.2


def signs_of(tokens: QuestionTokens, share: float) -> str:
    """Signs of a passage in which this fraction of the tokens has the signs of the question's."""
    same = np.arange(len(tokens.states)) < share * len(tokens.states)
    return base64.b64encode(np.packbits((tokens.states > 0) == same[:, None], axis=1).tobytes()).decode()


def with_tokens(query: Query) -> tuple[Query, QuestionTokens]:
    drawn = np.random.default_rng(1).normal(size=(10, 384)).astype(np.float32)
    states = drawn / np.linalg.norm(drawn, axis=1)[:, None]
    tokens = QuestionTokens(states, np.full(10, 0.1, np.float32))
    return replace(query, tokens=tokens), tokens


def test_of_otherwise_equal_passages_the_one_with_the_questions_tokens_wins() -> None:
    """Discriminates: reading tokens without using them."""
    query, tokens = with_tokens(ask("how much is a new badge?"))
    texts = ["one passage of some length", "another passage of the same"]
    alike = [candidate(text) for text in texts]
    far, near = (
        replace(each, signs=signs_of(tokens, share)) for each, share in zip(alike, (0.3, 1.0), strict=True)
    )
    judged = judge(query, [far, near], E5)
    assert judged[1].probability > 1.5 * judged[0].probability


@pytest.mark.parametrize(("share", "is_shown"), [(0.1, False), (0.5, True)])
def test_a_question_whose_tokens_are_near_no_text_has_another_subject(share: float, is_shown: bool) -> None:
    """Discriminates: one cosine that is the highest, and the word that two unrelated questions share."""
    query, tokens = with_tokens(ask("how do vaccines work"))
    texts = ["How do the lifts work on Sundays? They do not.", "The lifts are checked every month."]
    listed = [replace(candidate(text, n), signs=signs_of(tokens, share)) for n, text in enumerate(texts, 1)]
    judged = judge(query, listed, E5)
    assert bool(apply_threshold(judged, THRESHOLD, 10, query.question)) is is_shown
    assert judged[0].probability > 2 * judged[1].probability


@pytest.mark.parametrize(
    ("question", "by_words"),
    [
        ("My brother lost his receipt.", True),
        (
            "It is for my brother, who turns thirty on Friday and whom I have not seen for half a year: "
            "could you do it up in nice paper, with ribbons and everything, and what would that set me back?",
            False,
        ),
    ],
)
def test_two_words_of_a_long_story_count_less_than_its_tokens(question: str, by_words: bool) -> None:
    """Discriminates: the text that happens to mention a brother first, whatever the question means."""
    query, tokens = with_tokens(ask(question))
    texts = ["My brother lost the receipt. Is the warranty gone?", "Presents are wrapped for 3.50."]
    worded, meant = (
        replace(candidate(text, at, 0.84), signs=signs_of(tokens, share))
        for at, (text, share) in enumerate(zip(texts, (0.5, 0.6), strict=True), 1)
    )
    first, second = judge(query, [worded, meant], E5)
    assert (first.probability > second.probability) is by_words


@pytest.mark.parametrize(("cosine", "is_shown"), [(0.82, False), (0.9, True)])
def test_a_story_around_a_question_does_not_make_it_one_about_something_else(
    cosine: float, is_shown: bool
) -> None:
    """Discriminates: refusing because most of its words are in no text, although its vector is near one."""
    query, tokens = with_tokens(ask("My brother turns thirty. Could you do it up in nice paper?"))
    texts = ["Can you wrap a present? Yes.", "Returns are free.", "Tents are sewn in Ghent."]
    listed = [
        replace(candidate(text, n, cosine - 0.02 * n), signs=signs_of(tokens, 0.1))
        for n, text in enumerate(texts, 1)
    ]
    judged = judge(query, listed, E5)
    assert bool(apply_threshold(judged, THRESHOLD, 10, query.question)) is is_shown


def test_of_equal_passages_the_one_with_a_part_about_the_question_wins() -> None:
    """Discriminates: averaging away one article among several; ranking a chunk of an earlier release lower
    for parts it does not have."""
    query, tokens = with_tokens(ask("how much is a new badge?"))
    asked, other = np.eye(2, 384)
    query = replace(query, forms=(replace(query.forms[0], dense=asked.tolist()),))
    signed = [
        replace(candidate("a passage of several articles", dense=0.83), signs=signs_of(tokens, 0.6))
        for _ in range(3)
    ]
    parts: list[list[list[float]]]
    parts = [[], [(0.9 * asked).tolist(), other.tolist()], [(0.83 * asked).tolist(), other.tolist()]]
    known = [
        replace(each, signs=with_parts(each.signs, own)) for each, own in zip(signed, parts, strict=True)
    ]
    whole, near, far = (each.probability for each in judge(query, known, E5))
    assert near > 1.5 * max(whole, far)
    before = [each.probability for each in judge(query, signed, E5)]
    assert [each.probability for each in judge(query, [signed[0], *known[1:]], E5)] == before


def test_if_one_candidate_lacks_tokens_all_are_judged_without_them() -> None:
    """Discriminates: comparing a chunk of an earlier release, or of another embedding, by tokens it lacks."""
    query, tokens = with_tokens(ask("how much is a new badge?"))
    texts = [candidate("one passage"), candidate("another passage", rank=2)]
    signed = [replace(each, signs=signs_of(tokens, 1.0)) for each in texts]
    before = [each.probability for each in judge(replace(query, tokens=None), texts, E5)]
    for mixed, asked in (([signed[0], texts[1]], query), (signed, replace(query, tokens=None))):
        assert [each.probability for each in judge(asked, mixed, E5)] == before
    assert [each.probability for each in judge(query, signed, E5)] != before
    assert judge(query, signed, ANY)[0].probability == judge(query, texts, ANY)[0].probability


def test_a_candidate_from_no_list_counts_only_if_no_listed_candidate_is_sure() -> None:
    """Discriminates: a translation that lowers or passes a sure passage; one that is never judged."""
    own = candidate("每年的费用是九十元，一月初付清", rank=1, dense=0.92)
    others = [candidate(f"第 {at} 条：停车场在楼下", rank=at, dense=0.8) for at in range(2, 12)]
    abroad = replace(candidate("The yearly fee is 90 yuan.", dense=0.9), dense_rank=None, sparse_rank=None)
    question = ask("每年的费用是多少？")
    alone = judge(question, [own, *others], E5)
    assert alone[0].probability >= SURE
    both = judge(question, [abroad, own, *others], E5)
    assert [each.probability for each in both] == [0.0, *(each.probability for each in alone)]
    unsure = judge(question, [abroad, *others], E5)
    assert max(each.probability for each in judge(question, others, E5)) < SURE
    assert unsure[0].probability == max(each.probability for each in unsure) > 0


def test_a_subset_of_candidates_is_compared_as_if_there_were_no_others() -> None:
    """Discriminates: ranks, rarities and leads over candidates that do not count."""
    query, tokens = with_tokens(ask("每年的费用是多少？", "停车呢？"))
    texts = ["每年的费用是九十元", "第二条：停车场在楼下", "The yearly fee is 90 yuan.", "食堂在二楼"]
    listed = [
        replace(candidate(text, at, 0.9 - at / 50), signs=signs_of(tokens, at / 5))
        for at, text in enumerate(texts, start=1)
    ]
    some = [0, 2, 3]
    among, alone = Features(query, listed, E5.levels).among(some), [listed[at] for at in some]
    afresh = Features(query, alone, E5.levels)
    token_rows = [each.tokens(E5.levels) for each in (among, afresh)]
    for mine, theirs in ((among.rows, afresh.rows), (among.question, afresh.question), token_rows):
        assert mine is not None
        assert theirs is not None
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("heading", "row", "stands_beside"),
    [
        ("In the house", "| Sauna | £9 |", True),
        ("Nearby", "| Sauna | £9 |", False),
        ("In the house", "| Canoe | £9 |", False),
    ],
)
def test_another_piece_of_the_best_candidates_section_accompanies_it(
    heading: str, row: str, stands_beside: bool
) -> None:
    """Discriminates: losing a table that was split from its text; showing one unrelated to the question
    because of its section; showing one of another section."""
    text = candidate("The sauna holds six people; children need an adult.", 1, 0.87, "In the house")
    table = candidate(f"| What | Price |\n| --- | --- |\n{row}", 9, 0.7, heading)
    best, other = judge(ask("is there a sauna?"), [text, table], E5)
    assert (other.probability == pytest.approx(PIECE_SHARE * best.probability)) is stands_beside
