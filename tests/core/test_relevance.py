import json
import time
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.knowledge import Candidate, Chunk
from core.query import Query, QueryForm
from core.relevance import ABSOLUTE_FEATURES, FEATURES, apply_threshold, features, judge, load_coefficients
from core.sparse import encode_query

E5 = load_coefficients("multilingual-e5-small")


def ask(*texts: str) -> Query:
    return Query(texts[0], tuple(QueryForm(text, [], encode_query(text)) for text in texts))


def candidate(text: str, rank: int = 1, dense: float | None = 0.8, heading: str = "") -> Candidate:
    return Candidate(
        Chunk(f"chunk-{rank}", "d", "f", text, 0, heading), dense, 5.0 / rank, rank, rank, 1 / (60 + rank)
    )


def column(name: str, query: Query, candidates: list[Candidate]) -> list[float]:
    return [float(value) for value in features(query, candidates)[:, FEATURES.index(name)]]


def test_a_candidate_that_holds_the_question_is_more_probable_than_one_that_does_not() -> None:
    found = judge(
        ask("专业版每月的费用是多少？"),
        [candidate("专业版每月的费用是九十九元。", 1, 0.9), candidate("回收站保留三十天。", 2, 0.8)],
        E5,
    )
    assert found[0].probability > 0.5 > 0.2 > found[1].probability
    assert found[0].key_passage == "专业版每月的费用是九十九元。"


def test_the_order_is_left_to_the_reranker() -> None:
    listed = [candidate("无关", 1), candidate("费用是九十九元", 2)]
    assert [item.chunk for item in judge(ask("费用"), listed, E5)] == [item.chunk for item in listed]
    assert judge(ask("费用"), [], E5) == []


def test_terms_that_no_candidate_has_weigh_most() -> None:
    query = ask("量子计算的费用")
    held = [candidate("费用", 1), candidate("费用", 2)]
    assert column("rare_coverage", query, held)[0] < column("coverage", query, held)[0] < 1


def test_words_of_one_sentence_count_more_than_scattered_ones() -> None:
    together, apart = candidate("专业版的费用。别的。", 1), candidate("专业版。费用。别的。", 2)
    values = column("sentence_coverage", ask("专业版费用"), [together, apart])
    assert values[0] > values[1]


def test_the_heading_counts_as_part_of_the_text() -> None:
    assert column("coverage", ask("退款"), [candidate("七天之内。", heading="退款说明")]) == [1.0]


def test_a_follow_up_is_judged_by_its_joined_form_too() -> None:
    alone, joined = ask("它呢？"), ask("它呢？", "专业版费用 它呢？")
    assert column("coverage", alone, [candidate("专业版费用")]) == [0.0]
    assert column("coverage", joined, [candidate("专业版费用")]) == [1.0]


def test_a_candidate_without_a_cosine_counts_as_the_lowest_of_the_list() -> None:
    listed = [candidate("a", 1, 0.9), candidate("b", 2, 0.7), candidate("c", 3, None)]
    assert column("dense", ask("question"), listed) == [0.9, 0.7, 0.7]
    assert np.isfinite(features(ask("question"), [candidate("c", 1, None)])).all()


def test_an_unknown_embedding_is_judged_without_absolute_cosines() -> None:
    """Discriminates: falling back to the coefficients of another embedding."""
    other = load_coefficients("some/other-model")
    assert not {feature.name for feature in other.features} & set(ABSOLUTE_FEATURES)
    listed = [candidate("专业版费用", 1, 0.9), candidate("回收站", 2, 0.8)]
    lower = [replace(item, dense=(item.dense or 0) - 0.5) for item in listed]
    query = ask("专业版费用")
    before = [item.probability for item in judge(query, listed, other)]
    assert [item.probability for item in judge(query, lower, other)] == pytest.approx(before)


@pytest.mark.parametrize("name", ["multilingual-e5-small", "any"])
def test_shipped_coefficients_say_where_they_come_from(name: str) -> None:
    shipped = json.loads((files("core") / "relevance_coefficients" / f"{name}.json").read_text())
    assert {feature["name"] for feature in shipped["features"]} <= set(FEATURES)
    assert shipped["trained_on"] == ["cmrc2018", "drcd", "mtrag", "mtragun", "xquad"]
    assert shipped["figures_held_out"]["calibration_error"] <= 0.05
    assert shipped["figures_held_out"]["refusal_balanced_accuracy"] >= 0.75


def test_the_threshold_keeps_the_best_in_order() -> None:
    listed = [replace(candidate("x", rank), probability=p) for rank, p in enumerate((0.9, 0.5, 0.2, 0.19), 1)]
    assert apply_threshold(listed, 0.2, 10) == listed[:3]
    assert apply_threshold(listed, 0.2, 2) == listed[:2]
    assert apply_threshold(listed, 0.0, 10) == listed
    assert apply_threshold([], 0.2, 10) == []


TEXT = st.text(max_size=60)
NUMBER = st.none() | st.floats(-1, 1)


@given(TEXT, st.lists(st.tuples(TEXT, NUMBER, st.none() | st.integers(1, 20)), max_size=6))
def test_any_candidate_gets_a_probability_and_a_verbatim_passage(
    question: str, rows: list[tuple[str, float | None, int | None]]
) -> None:
    listed = [
        Candidate(Chunk(str(at), "d", "f", text, 0), dense, None, rank, None)
        for at, (text, dense, rank) in enumerate(rows)
    ]
    for item in judge(ask(question), listed, E5):
        assert 0.0 <= item.probability <= 1.0
        assert item.key_passage in item.chunk.text


def test_twenty_candidates_take_a_few_milliseconds() -> None:
    text = "专业版每月的费用是九十九元，按年付费可以打折。回收站里的文件保留三十天。团队版需要五人起购。" * 8
    query = ask("问脉专业版每个月的费用是多少？", "团队版支持吗 问脉专业版每个月的费用是多少？")
    listed = [candidate(text[rank:], rank, heading="云盘指南 > 费用") for rank in range(1, 21)]
    judge(query, listed, E5)
    times = []
    for _ in range(15):
        started = time.process_time()
        judge(query, listed, E5)
        times.append(time.process_time() - started)
    assert min(times) < 0.02  # the goal is 5 ms on a quiet machine; this catches what is not linear


def test_of_twins_in_two_languages_the_questions_own_goes_first() -> None:
    """Discriminates: judging a text in another language by its cosine alone puts it before its twin."""
    query = ask("How do I change the model?")
    own = Candidate(
        Chunk("own", "d", "models.md", "To change the model, set LLM_MODEL and restart.", 0, "Models"),
        dense=0.90, sparse=7.7, dense_rank=1, sparse_rank=1,
    )  # fmt: skip
    foreign = Candidate(
        Chunk("foreign", "d", "models.md", "换大模型,改环境变量,再重新启动服务器即可生效。", 0, "模型"),
        dense=0.86, dense_rank=3,
    )  # fmt: skip
    beside = Candidate(
        Chunk("beside", "d", "models.md", "The reranker is chosen by RERANKER.", 0, "Models"),
        dense=0.86, sparse=2.0, dense_rank=2, sparse_rank=2,
    )  # fmt: skip
    judged = judge(query, [own, beside, foreign], load_coefficients("multilingual-e5-small"))
    assert judged[0].probability >= judged[2].probability
    unsure = judge(query, [own, replace(beside, dense=0.895), foreign], load_coefficients("any"))
    assert unsure[0].probability != unsure[2].probability
