from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.features import MAX_QUESTION_CHARS, MAX_TERMS, MAX_TEXT_CHARS, QuestionWords
from core.relevance.names import MAX_CODES, clauses, identifiers, numbered_parts, shares, short_codes
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import (
    MAX_REPEATS,
    Hits,
    covered_nearby,
    encode_query,
    folded,
    holds,
    is_cjk,
    word_pieces,
    words_of,
)
from tests.support.machine import at_most

ASKED, BEFORE, ALL_BEFORE, ANSWER = range(4)
DAYS = ("周末", "工作日", "平时", *(f"周{day}" for day in "一二三四五六日"))


def ask(question: str, *previous: str) -> Query:
    return Query(question, (QueryForm(question, [], encode_query(question)),), previous)


def hits_in(question: str, text: str) -> list[tuple[int, str]]:
    words = QuestionWords.of(ask(question))
    hits = words.hits(text)
    return [(at, words.terms[number]) for at, number in zip(hits.positions, hits.terms, strict=True)]


def weights_of(words: QuestionWords, row: int) -> dict[str, float]:
    return {
        term: float(weight) for term, weight in zip(words.terms, words.rows[row], strict=True) if weight > 0
    }


def test_chinese_terms_are_found_anywhere_and_words_by_their_stem() -> None:
    assert hits_in("费用 uploads", "费用：uploading，团队费用") == [(0, "费用"), (3, "upload"), (15, "费用")]


def test_full_width_letters_and_capitals_are_found() -> None:
    """Discriminates: searching the text as it was written."""
    assert hits_in("PDF 文件", "ＰＤＦ文件和pdf") == [(0, "pdf"), (3, "文件"), (6, "pdf")]
    assert hits_in("卡拉OK的歌", "卡拉ok") == [(0, "卡拉"), (2, "ok")]


def test_an_identifier_is_found_whole_and_in_parts() -> None:
    assert (4, "recent") in hits_in("MAX_RECENT_TURNS", "the recent ones")
    whole = hits_in("MAX_RECENT_TURNS", "MAX_RECENT_TURNS = 5")
    assert {term for _, term in whole} == {"max_recent_turns", "max", "recent", "turn"}
    assert {at for at, _ in whole} == {0}


def test_a_latin_word_inside_another_is_not_found() -> None:
    """Discriminates: finding every term by substring."""
    assert hits_in("the fee", "coffee and toffee") == []


def test_a_text_that_repeats_one_word_endlessly_records_only_a_few_positions() -> None:
    assert len(hits_in("费用", "费用" * 1000)) == MAX_REPEATS
    assert hits_in("费用", "。" * MAX_TEXT_CHARS + "费用") == []


def test_rows_are_the_question_the_previous_one_all_earlier_ones_and_the_last_answer() -> None:
    """Discriminates: swapping the row of the previous question with that of all earlier ones."""
    words = QuestionWords.of(replace(ask("费用？", "专业版好吗", "团队版呢"), last_answer="回收站"))
    rows = [set(weights_of(words, row)) for row in range(4)]
    assert rows[ASKED] == {"费用"}
    assert "团队" in rows[BEFORE]
    assert "专业" not in rows[BEFORE]
    assert {"团队", "专业"} < rows[ALL_BEFORE]
    assert "回收" in rows[ANSWER]


def test_without_an_earlier_question_its_rows_are_empty() -> None:
    words = QuestionWords.of(ask("费用？"))
    assert words.rows.shape == (4, len(words.terms))
    assert words.rows[BEFORE:].sum() == 0
    assert QuestionWords.of(ask("是什么？")).rows.shape == (4, 0)


def test_the_question_keeps_its_terms_however_long_the_answer_was() -> None:
    """Discriminates: keeping the last MAX_TERMS in place of the first."""
    words = QuestionWords.of(
        replace(ask("what about quokkas?"), last_answer=" ".join(f"q{at}" for at in range(300)))
    )
    assert len(words.terms) == MAX_TERMS
    assert set(weights_of(words, ASKED)) == {"quokka"}


def test_only_the_end_of_a_very_long_question_counts() -> None:
    words = QuestionWords.of(ask("开头 " + "x" * MAX_QUESTION_CHARS + " 结尾"))
    assert "结尾" in words.terms
    assert "开头" not in words.terms


def test_a_term_counts_once_in_coverage() -> None:
    assert Hits([0, 4, 9], [1, 1, 2]).here(4).tolist() == [0.0, 1.0, 1.0, 0.0]
    assert Hits([], []).here(0).tolist() == []


@pytest.mark.parametrize(
    ("positions", "numbers", "width", "expected"),
    [
        ([], [], 10, 0.0),
        ([3], [1], 10, 0.3),
        ([0, 10], [0, 1], 10, 0.5),  # exactly the width apart still counts as near
        ([0, 11], [0, 1], 10, 0.3),
        ([0, 1, 2], [1, 1, 1], 10, 0.3),  # repetitions add nothing
        ([0, 5, 30, 31], [0, 1, 0, 2], 10, 0.7),
        ([0, 0, 0], [0, 1, 2], 0, 1.0),  # an identifier and its parts have the same position
    ],
)
def test_covered_nearby_by_hand(
    positions: list[int], numbers: list[int], width: int, expected: float
) -> None:
    assert covered_nearby(np.array([0.2, 0.3, 0.5]), Hits(positions, numbers), width) == pytest.approx(
        expected
    )


def nearby_by_definition(weight: list[float], hits: list[tuple[int, int]], width: int) -> float:
    best = max((weight[number] for _, number in hits), default=0.0)
    for (start, _), (end, _) in combinations(hits, 2):
        if end - start <= width:
            best = max(best, sum(weight[n] for n in {n for at, n in hits if start <= at <= end}))
    return best


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3, 1.0]), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=12),
    st.integers(0, 40),
)
def test_covered_nearby_is_the_best_window(
    weight: list[float], places: list[tuple[int, int]], width: int
) -> None:
    """Discriminates: `<=` for `<` at the window's edge; losing a term that occurs twice."""
    hits = sorted(places)
    swept = covered_nearby(np.array(weight), Hits([at for at, _ in hits], [n for _, n in hits]), width)
    assert swept == pytest.approx(nearby_by_definition(weight, hits, width))


WORDS = st.sampled_from(
    [
        "费用",
        "专业版",
        "回收站",
        "MAX_UPLOAD_MB",
        "uploads",
        "Uploaded",
        "C++",
        "v1.2",
        "İstanbul",
        "ＰＤＦ",
        "한국어",
    ]
)
TEXT = st.text(max_size=60) | st.lists(WORDS | st.text(max_size=4), max_size=12).map(" ".join)


@given(TEXT, TEXT)
def test_a_hit_really_contains_its_term(question: str, text: str) -> None:
    """Discriminates: positions left in the order of the terms; matching Latin terms by substring."""
    words = QuestionWords.of(ask(question))
    hits = words.hits(text)
    assert hits.positions == sorted(hits.positions)
    lowered = folded(text[:MAX_TEXT_CHARS])
    by_place = dict(zip(*words_of(lowered), strict=True))
    for at, number in zip(hits.positions, hits.terms, strict=True):
        term = words.terms[number]
        if term in DAYS:  # in other words
            assert holds(lowered.lower()[at:], term)
        elif is_cjk(term):
            assert lowered.lower().startswith(term, at)
        else:
            assert term in word_pieces(by_place[at])


@given(TEXT, st.lists(TEXT, max_size=3))
def test_a_text_that_repeats_the_question_covers_all_of_it(question: str, previous: list[str]) -> None:
    words = QuestionWords.of(ask(question, *previous))
    here = words.hits(question).here(len(words.terms))
    asked = words.rows[ASKED]
    if len(folded(question)) <= MAX_QUESTION_CHARS:
        assert here @ asked == pytest.approx(asked.sum())


@pytest.mark.parametrize(
    ("question", "codes"),
    [
        ("Which number has the safe of project heron 10028?", ("10028",)),
        ("白鹭10056号样品架的编号是多少？", ("10056",)),
        ("What does ISO9001 say about AK-130 and E-4821?", ("iso9001", "ak-130", "e-4821")),
        ("2024年的预算", ()),
        ("the 2010-2011 season, the 11th of 2024-03-05, the 1980s", ()),
        ("error 404 in version 300", ("404",)),
        ("拨号错误691怎么办, 代码 300 行以内", ("691",)),
        ("under-16s and over-65s with a PB-500S", ("pb-500s",)),
        ("", ()),
    ],
)
def test_codes_are_distinguished_from_years_dates_and_ordinals(question: str, codes: tuple[str, ...]) -> None:
    """Discriminates: every number taken for a code."""
    assert identifiers(question) == codes


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("What does clause 7.6 say?", ("7.6",)),
        ("compare Section 3.1.6 and § 4.2, please", ("3.1.6", "4.2")),
        ("what came with version 7.6", ()),
        ("section 7", ()),
        ("clause 1.2.3.4.5", ()),
    ],
)
def test_the_number_of_a_named_clause_is_an_identifier(question: str, numbers: tuple[str, ...]) -> None:
    assert clauses(question) == numbers


@pytest.mark.parametrize(
    ("question", "text", "share"),
    [
        ("第37条怎么规定的", "劳动法\n第三十七条　提前三十日通知。", 1.0),
        ("第三十七條是什麼", "**第 37 条** 提前三十日通知。", 1.0),
        ("第37条怎么规定的", "依照本法第三十七条处理。", 0.5),
        ("第37条怎么规定的", "第三百三十七条　不适用。\n第137条", 0.0),
        ("民法典第1079条", "第一千零七十九条　夫妻一方要求离婚的", 1.0),
        ("第一千零一十条", "第1010条　甲", 1.0),
        ("第三章讲什么", "手册 > 第三章 报销\n发票要在月底前交。", 1.0),
        ("第三条说什么", "办法 > 三、加班\n加班要先申请。", 1.0),
        ("第三条说什么", "办法 > 十三、加班\n三、加班要先申请。", 0.0),
        ("第2部分", "手册 > 第二部分 报销\n发票要在月底前交。", 1.0),
        ("附件2在哪", "附件二：表格", 1.0),
        ("附件2在哪", "附件二十：表格", 0.0),
        ("What does Article 12 say?", "Article 12. The tenant pays.", 1.0),
        ("What does Article 12 say?", "as in Article 12", 0.5),
        ("What does Article 12 say?", "Article 120. No.\nArticle 12.5 No.", 0.0),
        ("explain section 5", "Manual > 5. Safety\nWear gloves.", 1.0),
        ("explain section 5", "Manual > 5.1 Safety\n5. gloves", 0.0),
        ("see Appendix B", "Appendix B: Forms", 1.0),
    ],
)
def test_an_article_is_found_at_its_beginning_in_any_number_format(
    question: str, text: str, share: float
) -> None:
    """Discriminates: an article that is only mentioned; one whose number shares a prefix or a suffix."""
    (part,) = numbered_parts(question)
    assert part.share(text) == share


@pytest.mark.parametrize(
    "question",
    [
        "Is there an article a child can read?", "第一次迟到", "chapter 3.2", "表3个", "a table for 4",
        "邮件附件20MB能发吗", "附件3份够吗", "附件一般多大", "附件三方协议", "第二课堂学分", "第二编辑部",
        "第二条件",
    ],
)  # fmt: skip
def test_text_that_only_looks_like_an_article_is_not_one(question: str) -> None:
    assert numbered_parts(question) == ()


def test_searching_a_hostile_text_for_an_article_takes_little_time() -> None:
    """Discriminates: trying each "> " of a deeply quoted mail with all shorter prefixes."""
    (part,) = numbered_parts("第37条")
    with at_most(0.1):
        assert part.share("> " * 2_000) == 0.0


def test_a_point_of_the_quoted_list_is_not_an_article() -> None:
    """Discriminates: the second article of any document; every 第二条 taken for a point."""
    rules = "> **会议室**\n> 1. 提前预订。\n> 2. 用完关灯。 [1]"
    assert numbered_parts("第二条具体怎么做", rules) == ()
    for question, answer in (("第五条呢", rules), ("第二条呢", "> 第一条 本办法……\n> 2. 关灯。 [1]")):
        assert len(numbered_parts(question, answer)) == 1


def test_a_heading_with_a_bare_number_is_a_section_but_not_a_unit() -> None:
    """Discriminates: 'the keys of unit 12' answered only as the closest passage, because chapters of a
    handbook have numbers."""
    for question, begins in (("section 3", True), ("the keys of unit 3", False), ("part 3", False)):
        (part,) = numbered_parts(question)
        assert bool(part.alike.search("Handbook > 4. Keys\nAnn has them.")) is begins


def test_a_code_is_found_as_a_whole_word_in_any_case() -> None:
    """Discriminates: 10028 found in 110028."""
    texts = ["Heron 10028.", "110028", "10028a", "iso9001 and 10028号", ""]
    assert shares(("10028", "iso9001"), texts) == [0.5, 0.0, 0.0, 1.0, 0.0]
    assert shares(("1350",), ["a deposit of 1,350 euros", "11,350", "1,3501"]) == [1.0, 0.0, 0.0]


def test_a_log_full_of_codes_costs_no_more_than_a_few_codes() -> None:
    """Discriminates: searching all passages for each code of a question: 150 ms for 1,200."""
    assert len(identifiers(" ".join(f"AB{number:05}" for number in range(10_000)))) == MAX_CODES
    assert len(short_codes(" ".join(f"A-{number}" for number in range(10_000)))) == MAX_CODES
