from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.knowledge import Candidate, Chunk, FormMatch
from core.relevance.features import (
    ABSOLUTE_FEATURES,
    FEATURES,
    QUESTION_FEATURES,
    USUAL_COVERED,
    USUAL_OVERLAP,
    Features,
    Level,
)
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query


def ask(question: str, *previous: str, last_answer: str = "") -> Query:
    wordings = [question, *(" ".join([*previous[at:], question]) for at in range(len(previous) - 1, -1, -1))]
    forms = tuple(QueryForm(text, [], encode_query(text)) for text in wordings)
    return Query(question, forms, previous, last_answer)


def candidate(
    text: str, *matches: FormMatch, heading: str = "", date: str = "", dense: float | None = 0.8
) -> Candidate:
    first = matches[0] if matches else FormMatch(dense, 1)
    chunk = Chunk("c", "d", "f.md", text, 0, heading, date=date)
    return Candidate(chunk, first.dense, first.sparse, first.dense_rank, first.sparse_rank, 0.1, matches)


def column(name: str, query: Query, candidates: Sequence[Candidate]) -> list[float]:
    return [float(value) for value in Features(query, candidates).rows[:, FEATURES.index(name)]]


def whole(name: str, query: Query, candidates: Sequence[Candidate]) -> float:
    return float(Features(query, candidates).question[QUESTION_FEATURES.index(name)])


def test_every_feature_has_a_name_of_its_own() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
    assert set(ABSOLUTE_FEATURES) < {*FEATURES, *QUESTION_FEATURES}
    hits = Features(ask("费用"), [candidate("费用"), candidate("退款")])
    assert hits.rows.shape == (2, len(FEATURES))
    assert hits.question.shape == (len(QUESTION_FEATURES),)


def test_a_cosine_is_given_absolute_and_relative_to_the_mean_and_the_best() -> None:
    listed = [candidate("a", FormMatch(0.9, 1)), candidate("b", FormMatch(0.7, 2))]
    query = ask("question")
    assert column("dense", query, listed) == [0.9, 0.7]
    assert column("question_dense_lead", query, listed) == pytest.approx([0.1, -0.1])
    assert column("question_dense_gap", query, listed) == pytest.approx([0.0, -0.2])


def test_ranks_fall_off_slowly_and_a_list_without_the_chunk_gives_nothing() -> None:
    """Discriminates: a missing rank that counts as the first."""
    listed = [candidate("a", FormMatch(0.9, 1, 4.0, 12)), candidate("b", FormMatch(0.8, None, 2.0, None))]
    query = ask("question")
    assert column("question_dense_rank", query, listed) == [1.0, 0.0]
    assert column("question_sparse_rank", query, listed) == [0.5, 0.0]
    assert column("question_sparse_share", query, listed) == [1.0, 0.5]


def test_a_candidate_without_a_cosine_gets_the_lowest_of_the_list() -> None:
    """Discriminates: 0 for a text that no dense list returned; no text of this embedder has a cosine of 0."""
    listed = [candidate(text, FormMatch(dense, 1)) for text, dense in (("a", 0.9), ("b", 0.7), ("c", None))]
    assert column("dense", ask("question"), listed) == [0.9, 0.7, 0.7]
    assert np.isfinite(Features(ask("question"), [candidate("c", dense=None)]).rows).all()


def test_each_form_of_the_question_has_columns_of_its_own() -> None:
    """Discriminates: reading the first form's match for all of them."""
    matches = (FormMatch(0.5, 3), FormMatch(0.7, 2), FormMatch(0.9, 1))
    other = (FormMatch(0.4, 4), FormMatch(0.4, 5), FormMatch(0.4, 6))
    listed = [candidate("a", *matches), candidate("b", *other)]
    query = ask("同步冲突呢？", "专业版？", "费用？")
    leads = [
        column(f"{name}_dense_lead", query, listed)[0] for name in ("question", "previous", "conversation")
    ]
    assert leads == pytest.approx([0.05, 0.15, 0.25])


def test_a_missing_form_repeats_the_last_one() -> None:
    one = [candidate("a", FormMatch(0.9, 1, 3.0, 2)), candidate("b", FormMatch(0.6, 2))]
    alone = Features(ask("费用？"), one).rows
    two = [candidate("a", FormMatch(0.9, 1), FormMatch(0.7, 2)), candidate("b", FormMatch(0.6, 2))]
    followed = Features(ask("它呢？", "费用？"), two).rows
    for name in ("dense_lead", "dense_gap", "dense_rank", "sparse_share", "sparse_rank"):
        question, previous, conversation = (
            FEATURES.index(f"{form}_{name}") for form in ("question", "previous", "conversation")
        )
        assert alone[:, question].tolist() == alone[:, conversation].tolist()
        assert followed[:, previous].tolist() == followed[:, conversation].tolist()


def test_a_candidate_without_form_matches_is_judged_by_its_overall_scores() -> None:
    foreign = Candidate(Chunk("c", "d", "f", "费用", 0), 0.8, 3.0, 1, 2)
    same = candidate("费用", FormMatch(0.8, 1, 3.0, 2))
    assert Features(ask("费用"), [foreign]).rows.tolist() == Features(ask("费用"), [same]).rows.tolist()


def test_terms_missing_from_all_candidates_weigh_most() -> None:
    """Discriminates: every term weighing the same in rare_covered."""
    query = ask("量子计算的费用")
    held = [candidate("费用"), candidate("费用")]
    assert whole("rare_covered", query, held) < column("coverage", query, held)[0] < 1


def test_only_a_text_in_the_questions_language_covers_its_rare_words() -> None:
    """Discriminates: taking a name that is the same in every language for an answer."""
    query = ask("Wenmai 的费用")
    assert whole("rare_covered", query, [candidate("Wenmai 的费用是九十九元"), candidate("退款")]) == 1.0
    abroad = [
        candidate("The fee for Wenmai is 99.", FormMatch(0.7, 2)),
        candidate("退款说明", FormMatch(0.9, 1)),
    ]
    assert whole("rare_covered", query, abroad) < 1.0


def test_a_cosine_is_relative_to_the_level_of_its_language_pair() -> None:
    """Discriminates: one level for all pairs, by which every translation is far; swapping the pair."""
    levels = {(True, True): Level(0.8, 0.02), (True, False): Level(0.7, 0.01), (False, True): Level(0.1, 9.0)}
    listed = [
        candidate("费用是九十九元", FormMatch(0.84, 1)),
        candidate("The fee is 99.", FormMatch(0.73, 2)),
    ]
    rows = Features(ask("费用是多少？"), listed, levels).rows
    assert rows[:, FEATURES.index("dense")].tolist() == pytest.approx([2.0, 3.0])
    assert rows[:, FEATURES.index("question_dense_gap")].tolist() == pytest.approx([-1.0, 0.0])


def test_a_translation_with_the_questions_words_is_judged_like_a_text_in_its_language() -> None:
    """Discriminates: a text in another language, close only because of a name, ahead of the one that
    answers."""
    levels = {(True, True): Level(0.8, 0.02), (True, False): Level(0.7, 0.01)}
    listed = [
        candidate("Zhimo is 99 a month.", FormMatch(0.82, 2)),
        candidate("费用每月九十九元。", FormMatch(0.86, 1)),
        candidate("The fee is 99 a month.", FormMatch(0.73, 3)),
    ]
    features = Features(ask("Zhimo 的费用？"), listed, levels)
    (named, own, neither) = features.rows[:, FEATURES.index("dense")]
    assert features.abroad.tolist() == [pytest.approx(0.5), 0.0, 1.0]
    assert (own, neither) == (pytest.approx(3.0), pytest.approx(3.0))
    assert named == pytest.approx((0.82 - 0.75) / 0.015)


def test_a_text_in_both_languages_needs_no_dictionary() -> None:
    """Discriminates: translated words as evidence for a text that has the question's own (a cook's wages)."""
    menu = candidate(
        "菜品 Dish 价格 Price 牛肉面 Beef noodles 22 元 豆浆 Soy milk 4 元", heading="食堂 Canteen"
    )
    features = Features(ask("what does the canteen cook earn"), [menu, candidate("食堂厨师的工资。")])
    assert np.isnan(features.translated[0])
    assert features.translated[1] > 0
    assert (features.foreign.tolist(), features.alone.tolist()) == ([1.0, 1.0], [0.0, 1.0])


def test_if_no_dense_list_has_candidates_all_are_at_their_language_level() -> None:
    """Discriminates: a cosine of 0, which is fifty deviations below the level of one language and forty below
    that of another."""
    levels = {(True, True): Level(0.8, 0.02), (True, False): Level(0.7, 0.01)}
    listed = [candidate("费用", dense=None), candidate("The fee.", dense=None)]
    rows = Features(ask("费用是多少？"), listed, levels).rows
    assert rows[:, FEATURES.index("dense")].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "text",
    [
        "| 代码 | 含义 |\n|---|---|\n| AP-4031 | ID bound to another account, see ticket and call the desk |",
        "```bash\nkubectl -n dock-prod get pods -l app=gate-api\ndockctl release\n```\n回滚到上一个版本",
    ],
)
def test_a_table_or_a_block_of_code_in_a_chinese_document_is_chinese(text: str) -> None:
    """Discriminates: taking a passage with more Latin words than ideographs for a foreign one."""
    assert column("foreign", ask("怎么回滚？"), [candidate(text, heading="部署指南 > 回滚")]) == [0.0]


def test_adjacent_words_count_more_than_scattered_ones() -> None:
    """Discriminates: an unbounded width."""
    together, apart = candidate("专业版的费用。"), candidate("专业版。" + "别的内容。" * 30 + "费用。")
    query = ask("专业版费用")
    near = column("near", query, [together, apart])
    assert near[0] > near[1] > 0
    covered = column("coverage", query, [together, apart])
    assert covered[0] - covered[1] < near[0] - near[1]


def test_a_question_without_content_words_uses_the_form_joined_with_the_previous() -> None:
    """Discriminates: searching and judging 为什么？ alone, to which all texts are equally near."""
    matches = (FormMatch(0.5, 3), FormMatch(0.7, 2), FormMatch(0.9, 1))
    listed = [
        candidate("专业版", *matches),
        candidate("b", FormMatch(0.6, 1), FormMatch(0.4, 5), FormMatch(0.4, 6)),
    ]
    query = ask("为什么？", "回收站", "专业版")
    assert column("dense", query, listed) == [0.7, 0.4]
    assert column("coverage", query, listed) == [1.0, 0.0]
    assert whole("top_dense", query, listed) == 0.7


def test_the_heading_and_the_date_count_as_part_of_the_text() -> None:
    listed = [candidate("七天之内。", heading="退款说明"), candidate("七天之内。")]
    assert column("coverage", ask("退款"), listed) == [1.0, 0.0]
    dated = [candidate("招生简章", date="2023-06-01"), candidate("招生简章")]
    assert column("numbers_missing", ask("2023 年招生"), dated) == [0.0, 1.0]


def test_earlier_questions_and_answers_have_separate_coverage() -> None:
    """Discriminates: counting the words of earlier questions as the question's."""
    query = ask("同步冲突呢？", "回收站", "专业版", last_answer="团队")
    held = [candidate("专业版"), candidate("回收站"), candidate("团队")]
    assert column("coverage", query, held) == [0.0, 0.0, 0.0]
    assert column("previous_coverage", query, held) == pytest.approx([1.0, 0.0, 0.0])
    conversation = column("conversation_coverage", query, held)
    assert conversation[0] > 0 < conversation[1]
    assert conversation[2] == 0
    assert column("answer_coverage", query, held) == pytest.approx([0.0, 0.0, 1.0])


def test_a_missing_number_of_the_question_is_noticed() -> None:
    held = [candidate("错误 E1001：2021 年"), candidate("错误 E1001"), candidate("2021 年")]
    assert column("numbers_missing", ask("2021 年的 1001"), held) == [0.0, 0.5, 0.5]
    assert column("numbers_missing", ask("年份"), held) == [0.0, 0.0, 0.0]


def test_a_text_in_another_language_has_its_own_columns() -> None:
    """Discriminates: the foreign columns filled in for every candidate."""
    listed = [candidate("The fee is 99.", FormMatch(0.9, 1)), candidate("费用是九十九元", FormMatch(0.7, 2))]
    query = ask("费用是多少？")
    assert column("foreign", query, listed) == [1.0, 0.0]
    assert column("foreign_dense", query, listed) == [0.9, 0.0]
    assert column("foreign_lead", query, listed) == pytest.approx([0.1, 0.0])
    assert column("foreign_top_lead", query, listed) == pytest.approx([0.1, 0.0])
    assert whole("foreign", query, listed) == 0.5


def test_both_lists_agree_when_both_have_the_chunk_among_their_first() -> None:
    ranks = [(1, 1), (5, 5), (6, 1), (1, None)]
    listed = [candidate("a", FormMatch(0.8, dense, 1.0, sparse)) for dense, sparse in ranks]
    assert column("agreement", ask("question"), listed) == [1.0, 1.0, 0.0, 0.0]
    assert column("fused", ask("question"), listed) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_whole_list_features_measure_how_much_was_found() -> None:
    """Discriminates: `top_dense` of the first in the fused order; every word match counted as agreement;
    a share of ten where there are three."""
    listed = [
        candidate("专业版", FormMatch(0.7, 2, 3.0, 1)),
        candidate("费用", FormMatch(0.9, 1)),
        candidate("别的", FormMatch(0.5, 11, 1.0, 2)),
    ]
    query = ask("专业版费用")
    assert whole("top_dense", query, listed) == 0.9
    assert whole("ten_dense", query, listed) == pytest.approx(0.8)  # of the upper half
    assert whole("dense_by_words", query, listed) == pytest.approx(0.6)
    assert whole("overlap", query, listed) == pytest.approx(1 / 2)
    assert 0 < whole("covered", query, listed) < 1
    assert whole("foreign", query, listed) == 0.0


def test_words_are_neutral_if_all_candidates_are_in_another_language() -> None:
    """Discriminates: taking words that cannot match across languages for the absence of an answer."""
    abroad = [candidate("The fee is 99.", FormMatch(0.9, 1)), candidate("Refunds.", FormMatch(0.7, 2))]
    query = ask("费用是多少？")
    assert whole("overlap", query, abroad) == USUAL_OVERLAP
    assert whole("covered", query, abroad) == USUAL_COVERED
    assert whole("dense_by_words", query, abroad) == whole("ten_dense", query, abroad)
    assert whole("foreign_top_lead", query, abroad) == pytest.approx(0.1)
    at_home = [candidate("费用是九十九元", FormMatch(0.9, 1)), candidate("退款", FormMatch(0.7, 2))]
    assert whole("overlap", query, at_home) == 0.0
    assert whole("covered", query, at_home) == 1.0  # of the upper half
    assert whole("foreign_top_lead", query, at_home) == 0.0


def test_rows_are_in_the_order_of_the_candidates() -> None:
    texts = ["专业版的费用", "回收站", "退款"]
    query = ask("专业版费用")
    forward = column("coverage", query, [candidate(text) for text in texts])
    assert column("coverage", query, [candidate(text) for text in reversed(texts)]) == forward[::-1]


TEXT = st.text(max_size=40) | st.lists(
    st.sampled_from(["费用", "专业版", "它呢", "fee", "plans", "2021", "E1001", "。", " ", "ＰＤＦ"]),
    max_size=8,
).map("".join)
COSINE = st.none() | st.floats(-1, 1)
RANK = st.none() | st.integers(1, 30)
MATCH = st.builds(FormMatch, COSINE, RANK, st.floats(0, 1e6), RANK)
CANDIDATE = st.builds(
    lambda text, heading, dense, sparse, rank, matches: Candidate(
        Chunk("c", "d", "f", text, 0, heading), dense, sparse, rank, rank, 0.0, tuple(matches)
    ),
    TEXT, TEXT, COSINE, st.none() | st.floats(0, 1e6), RANK, st.lists(MATCH, max_size=4),
)  # fmt: skip


@given(TEXT, st.lists(TEXT, max_size=3), TEXT, st.lists(CANDIDATE, min_size=1, max_size=5))
def test_any_candidates_give_finite_features(
    question: str, previous: list[str], answer: str, candidates: list[Candidate]
) -> None:
    """Discriminates: dividing by the best word score, or by the question's weight, where it is 0."""
    hits = Features(ask(question, *previous, last_answer=answer), candidates)
    assert hits.rows.shape == (len(candidates), len(FEATURES))
    assert np.isfinite(hits.rows).all()
    assert np.isfinite(hits.question).all()
    shares = hits.rows[:, [FEATURES.index(name) for name in ("near", "coverage", "numbers_missing")]]
    assert (shares >= 0).all()
    assert (shares <= 1 + 1e-9).all()
