import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.knowledge import Candidate, Chunk, FormMatch
from core.relevance.meaning import (
    FREQUENT,
    MAX_MEANINGS,
    MAX_QUESTION_TOKENS,
    Floats,
    QuestionTokens,
    TextWords,
    TokenMeans,
    TokenStates,
    Translated,
    coverage,
    load_means,
    nearest_tokens,
    nearness,
    parts_in,
    respelled,
    translated,
    unpacked,
    with_parts,
    with_twins,
)
from core.relevance.probability import Coefficients, Together, judge
from scripts.training.translations import pairs, write
from tests.core.relevance.test_probability import E5, ask, candidate, plain, signs_of, with_tokens
from tests.support.machine import at_most

DIMENSIONS = 64
NO_MEANS = TokenMeans(*(np.zeros(DIMENSIONS, np.float32) for _ in range(2)))


def states(rng: np.random.Generator, tokens: int, rarity: float = 12.0) -> TokenStates:
    drawn = rng.normal(size=(tokens, DIMENSIONS)).astype(np.float32)
    return TokenStates(drawn, np.full(tokens, rarity, np.float32))


def asked(tokens: TokenStates) -> QuestionTokens:
    question = NO_MEANS.question_tokens(tokens)
    assert question is not None
    return question


def packed(means: TokenMeans, tokens: TokenStates) -> bytes:
    return unpacked(means.signs(tokens), DIMENSIONS)


def near(question: QuestionTokens, passages: list[bytes]) -> list[float]:
    return [*map(float, nearness(question, nearest_tokens(question, passages)))]


def count(signs: str) -> int:
    return 8 * len(unpacked(signs, DIMENSIONS)) // DIMENSIONS


def test_damaged_signs_are_ignored() -> None:
    """Discriminates: a question that fails because of one passage's damaged payload."""
    signs = NO_MEANS.signs(states(np.random.default_rng(6), 3))
    assert len(unpacked(signs, DIMENSIONS)) == 3 * DIMENSIONS // 8
    for damaged in ("", signs[:-4], signs + "é", signs[:5] + "*" + signs[6:]):
        assert unpacked(damaged, DIMENSIONS) == b""


def test_part_vectors_follow_the_signs_and_leave_them_unchanged() -> None:
    """Discriminates: reading parts from chunks of earlier releases, which have none; a question that fails
    because of a damaged payload."""
    rng = np.random.default_rng(5)
    signs, vectors = NO_MEANS.signs(states(rng, 3)), rng.normal(size=(2, DIMENSIONS))
    both = with_parts(signs, vectors.tolist())
    assert unpacked(both, DIMENSIONS) == unpacked(signs, DIMENSIONS) != b""
    parts = parts_in(both, DIMENSIONS)
    assert parts is not None
    assert parts == pytest.approx(vectors, rel=1e-3, abs=1e-3)
    none = [parts_in(with_parts(each, []), DIMENSIONS) for each in ("", signs)]
    assert [each is not None and each.shape for each in none] == [(0, DIMENSIONS)] * 2
    unknown = ("", signs, both[:-4], f"{both} ", f"{signs} é")
    assert all(parts_in(each, DIMENSIONS) is None for each in unknown)


def test_a_passage_counts_by_its_nearest_token_in_any_position() -> None:
    """Discriminates: the mean over a passage's tokens; splitting passages at the wrong offsets."""
    rng = np.random.default_rng(1)
    question, others = states(rng, 3), [states(rng, size) for size in (5, 1, 9)]
    holding = TokenStates(np.vstack([others[2].states, question.states]), np.full(12, 12.0, np.float32))
    passages = [packed(NO_MEANS, each) for each in (*others, holding)]
    shares = near(asked(question), passages)
    assert max(shares) == shares[3]
    # a unit vector of normal numbers and its own signs: √(2/π)
    assert shares[3] == pytest.approx(np.sqrt(2 / np.pi), abs=0.05)
    assert shares == pytest.approx([near(asked(question), [each])[0] for each in passages])


def test_what_all_tokens_have_in_common_carries_no_information() -> None:
    """Discriminates: signs of the raw states, of which most are those of the common direction."""
    rng = np.random.default_rng(2)
    common = 20 * rng.normal(size=DIMENSIONS).astype(np.float32)
    question, other = states(rng, 4), states(rng, 4)
    shifted: list[TokenStates] = [each._replace(states=each.states + common) for each in (question, other)]
    mean: Floats = np.mean(
        [each.states / np.linalg.norm(each.states, axis=1)[:, None] for each in shifted], (0, 1)
    )
    means = TokenMeans(mean, mean)
    tokens = means.question_tokens(shifted[0])
    assert tokens is not None
    own, foreign = near(tokens, [packed(means, each) for each in shifted])
    assert own > foreign + 0.3


def test_frequent_pieces_of_a_passage_are_omitted_unless_it_has_no_others() -> None:
    """Discriminates: storing every token; an empty passage of function words."""
    rng = np.random.default_rng(3)
    mixed = states(rng, 6)
    mixed.rarity[:4] = FREQUENT - 1
    assert count(NO_MEANS.signs(mixed)) == 2
    assert count(NO_MEANS.signs(states(rng, 5, FREQUENT - 1))) == 5
    assert NO_MEANS.signs(states(rng, 0)) == ""


def test_the_rarest_tokens_of_a_long_question_are_compared_in_order() -> None:
    """Discriminates: the first tokens, which are the preamble of a long question."""
    rng = np.random.default_rng(4)
    long = states(rng, 3 * MAX_QUESTION_TOKENS, 5.0)
    long.rarity[-2:] = 12.0
    question = asked(long)
    assert len(question.states) == MAX_QUESTION_TOKENS
    assert question.weights.sum() == pytest.approx(1.0)
    assert question.weights[-1] == question.weights[-2] > 4 * question.weights[0]
    assert NO_MEANS.question_tokens(states(rng, 0)) is None


def test_weights_determine_how_much_each_token_counts() -> None:
    """Discriminates: a plain mean over the question's tokens."""
    rng = np.random.default_rng(5)
    question = asked(states(rng, 2))
    passage = packed(NO_MEANS, TokenStates(question.states[:1], np.array([12.0], np.float32)))
    heavy = replace(question, weights=np.array([1.0, 0.0], np.float32))
    light = replace(question, weights=np.array([0.0, 1.0], np.float32))
    assert near(heavy, [passage])[0] > 0.6 > 0.5 > near(light, [passage])[0]


def test_the_shipped_means_fit_the_bundled_embedding() -> None:
    means = load_means("multilingual-e5-small")
    assert means.passage.shape == means.question.shape == (384,)
    assert 0.5 < np.linalg.norm(means.passage) < 1 > np.linalg.norm(means.question) > 0.5


def meanings(question: str) -> list[set[str]]:
    return [{" ".join(meaning) for meaning in word.meanings} for word in translated(question)]


@pytest.mark.parametrize(
    ("question", "meant"),
    [
        ("保修几年?", ["warranti"]),
        ("装修押金", ["renov", "deposit"]),
        ("How many days of annual leave?", ["年假"]),
        ("The warranty", ["保修"]),
        ("XL-200 的重量", ["weight", "xl-200"]),
        ("Does it take NFL cards?", ["nfl"]),
    ],
)
def test_a_question_is_translated_into_words_of_the_other_language(question: str, meant: list[str]) -> None:
    assert set(meant) <= {meaning for word in meanings(question) for meaning in word}


def test_a_dictionary_phrase_is_not_split_into_words() -> None:
    """Discriminates: translating "leave" separately: 离开 and twenty others."""
    assert meanings("annual leave") == [{"年假"}]


def test_an_ambiguous_word_is_ignored() -> None:
    assert translated("time") == ()
    assert all(len(word.meanings) <= MAX_MEANINGS for word in translated("How much time does an order take?"))


def test_words_without_a_translation_are_omitted() -> None:
    assert translated("怎么除垢") == translated("") == translated("😀 ?!") == ()


def test_rare_words_weigh_more_and_half_a_meaning_counts_half() -> None:
    words = (
        Translated(1.0, (("machin",),)),
        Translated(1.0, (("process", "fee"), ("commiss",))),
    )
    texts = [TextWords("", {"machin"}), TextWords("", {"machin", "commiss"}), TextWords("", {"fee"})]
    first, second, third = coverage(words, texts)
    assert second == pytest.approx(1.0)
    assert 0 < third == pytest.approx(0.5 * (1 - first))
    assert first < 0.5


def test_a_chinese_word_is_found_within_others() -> None:
    (share,) = coverage((Translated(1.0, (("年假",), ("x3",))),), [TextWords("带薪年假十天", set())])
    assert share == 1.0


def test_the_dictionary_is_read_in_both_directions(tmp_path: Path) -> None:
    lines = [
        "# CC-CEDICT\n",
        "保修 保修 [bao3 xiu1] /guarantee; warranty/CL:個|个[ge4]/\n",
        "年假 年假 [nian2 jia4] /annual leave/New Year holidays (abbr.)/one that takes many other words/\n",
        "個 个 [ge4] /classifier/\n",  # a single character is part of too many words
        "什麼 什么 [shen2 me5] /what/\n",
        "張 张 [Zhang1] /surname Zhang/\n",
    ]
    found = set(pairs(lines))
    assert found == {
        ("保修", "guarante"), ("保修", "warranti"), ("年假", "annual leav"), ("年假", "new year holiday"),
    }  # fmt: skip
    assert write(found, tmp_path / "t.sqlite3") == 8
    rows = sqlite3.connect(tmp_path / "t.sqlite3").execute(
        "SELECT other FROM translation WHERE term = '年假'"
    )
    assert rows.fetchall() == [("annual leav",), ("new year holiday",)]


# For probabilities.


@pytest.mark.parametrize("question", ["保修几年?", "How long is the warranty?"])
def test_a_text_in_another_language_is_recognised_by_words_the_dictionary_translates(question: str) -> None:
    """Discriminates: the cosine alone, by which all texts in the other language are equally good."""
    english = ("The warranty is two years.", "The pump has 15 bar.", "Rinse the tank before the first use.")
    chinese = ("整机保修两年。", "水泵压力为十五巴。", "首次使用前冲洗水箱。")
    texts = english if question == "保修几年?" else chinese
    judged = [each.probability for each in judge(ask(question), [candidate(text, 9) for text in texts], E5)]
    assert judged[0] > 2 * max(judged[1:])


def test_a_name_that_is_the_same_in_every_language_does_not_raise_a_translation() -> None:
    """Discriminates: judging the tokens of a text with the question's words by the level of texts that cannot
    have them."""
    query, tokens = with_tokens(ask("How do I point Open WebUI at it?"))
    own = candidate("Give Open WebUI the address of the server.", 1, 0.87)
    named = candidate("在 Open WebUI 里填服务器的地址。", 2, 0.835)
    signed = [replace(each, signs=signs_of(tokens, 0.7)) for each in (own, named)]
    first, second = judge(query, signed, E5)
    assert first.probability > second.probability


def test_a_word_that_the_questions_language_also_has_is_no_evidence_for_other_texts() -> None:
    """Discriminates: 加进去 is in no dictionary, so an English text with PDF has every known word."""
    abroad = candidate("One sent over HTTP: file=@manual.pdf", 2, 0.81)
    has_it, has_not = (candidate(text, 1, 0.85) for text in ("PDF 最多 50 MB。", "文件最多 50 MB。"))
    beside, alone = (judge(ask("怎么把我的 PDF 加进去？"), [own, abroad], E5)[1] for own in (has_it, has_not))
    assert beside.probability < alone.probability / 2


@pytest.mark.parametrize(("own_share", "by_tokens"), [(0.1, True), (1.0, False)])
def test_texts_in_another_language_are_compared_by_tokens_nearer_than_any_in_the_questions(
    own_share: float, by_tokens: bool
) -> None:
    """Discriminates: the single vector and the words alone, which rank a neighbour of the answer first;
    tokens alone, by which a translation passes its twin."""
    query, tokens = with_tokens(ask("新工牌要多少钱？"))
    beside, answers = candidate("Badges are checked at the gate.", 1, 0.8), candidate("It is 20.", 2, 0.77)
    own = candidate("新工牌在二楼领。", 3, 0.81)
    shares = (0.5, 0.6, own_share)
    listed = [
        replace(each, signs=signs_of(tokens, share))
        for each, share in zip((beside, answers, own), shares, strict=True)
    ]
    before, after, _ = judge(query, listed, E5)
    assert (after.probability > before.probability) is by_tokens


def saying(*subjects: int) -> str:
    """Return the signs of a text of 200 tokens, each near one of its subjects."""
    random = np.random.default_rng(sum(subjects))
    bent = np.array([np.random.default_rng(each).normal(size=64) for each in subjects])
    states = bent[random.integers(len(subjects), size=200)] + random.normal(size=(200, 64))
    means = TokenMeans(np.zeros(64, np.float32), np.zeros(64, np.float32))
    return means.signs(TokenStates(states.astype(np.float32), np.full(200, 10.0, np.float32)))


ASKED = QuestionTokens(np.ones((1, 64), np.float32), np.ones(1, np.float32))


@pytest.mark.parametrize(
    ("asked", "twin_chance", "lifted"),
    [(ASKED, 0.3, 0.6), (ASKED, 0.1, 0.1), (None, 0.3, 0.3)],
    ids=["near", "far behind", "no tokens"],
)
def test_a_text_gets_at_least_its_translations_probability_and_others_stay_unchanged(
    asked: QuestionTokens | None, twin_chance: float, lifted: float
) -> None:
    """Discriminates: the translation ranked first; lifting an arbitrary text in the question's language
    instead."""
    signs = (saying(1, 2), saying(1, 2, 3), saying(4, 5))
    listed = [replace(candidate("x", at, 0.8), signs=each) for at, each in enumerate(signs, 2)]
    chances = with_twins(listed, np.array([0.6, twin_chance, 0.35]), np.array([1.0, 0.0, 0.0]), asked)
    assert chances.tolist() == [0.6, lifted, 0.35]


def test_texts_with_other_numbers_are_no_translations_of_each_other() -> None:
    """Discriminates: lifting a text on the same subject, which then hides the one that answers; comparing the
    numbers only where tokens are known."""
    rooms = Chunk("rooms", "d", "visitors.md", "18 rooms at 2,100 yuan, 6 flats at 3,800 yuan.", 0, "Housing")
    guest = Chunk("guest", "d", "minutes.md", "访问学者 5 月 11 日到，住公寓，办公桌在 A305。", 0, "人员")
    listed = [
        Candidate(rooms, dense=0.8, signs=saying(1, 2)),
        Candidate(guest, dense=0.85, dense_rank=1, sparse_rank=1, signs=saying(1, 2, 3)),
    ]
    for tokens in (ASKED, None):
        chances = with_twins(listed, np.array([0.6, 0.4]), np.array([1.0, 0.0]), tokens)
        assert chances.tolist() == [0.6, 0.4]
        twin = replace(guest, text="客房 18 间，每月 2,100 元；公寓六套，每月 3,800 元。")
        same = [listed[0], replace(listed[1], chunk=twin)]
        assert with_twins(same, np.array([0.6, 0.4]), np.array([1.0, 0.0]), tokens).tolist() == [0.6, 0.6]


def test_a_text_without_a_translation_raises_nothing() -> None:
    """Discriminates: lifting the most similar text, however little it is similar."""
    listed = [replace(candidate("x", 2, 0.8), signs=saying(*each)) for each in ((1, 2), (4, 5), (6, 7))]
    chances = with_twins(listed, np.array([0.6, 0.4, 0.35]), np.array([1.0, 0.0, 0.0]), ASKED)
    assert chances.tolist() == [0.6, 0.4, 0.35]


# A model that uses the cosine alone: its twin must match whatever it gives a text in another language.
BY_COSINE = Coefficients("x", plain("dense", 10.0), plain("overlap", 0.0), Together(0.0, 1.0, 0.0, 0.0))
OWN = Candidate(
    Chunk("own", "d", "models.md", "To change the model, set LLM_MODEL and restart.", 0, "Models"),
    dense=0.90, sparse=7.7, dense_rank=1, sparse_rank=1,
    matches=(FormMatch(0.50, 1, 7.7, 1),),  # the model rates it below its twin
)  # fmt: skip
TWIN = Candidate(
    Chunk("twin", "d", "models.md", "换大模型,改环境变量,再重新启动服务器即可生效。", 0, "模型"),
    dense=0.86, dense_rank=3, matches=(FormMatch(0.86, 3),),
)  # fmt: skip
BESIDE = Candidate(
    Chunk("beside", "d", "models.md", "The reranker is chosen by RERANKER.", 0, "Models"),
    dense=0.86, sparse=2.0, dense_rank=2, sparse_rank=2, matches=(FormMatch(0.40, 2, 2.0, 2),),
)  # fmt: skip


def test_of_twins_in_two_languages_the_one_in_the_questions_language_ranks_first() -> None:
    """Discriminates: judging a text in another language by its cosine alone puts it before its twin."""
    judged = judge(ask("How do I change the model?"), [OWN, BESIDE, TWIN], BY_COSINE)
    assert judged[0].probability == judged[2].probability > judged[1].probability


@pytest.mark.parametrize(
    ("own", "beside"),
    [
        (OWN, replace(BESIDE, dense=0.895)),
        (replace(OWN, dense_rank=2), BESIDE),
        (replace(OWN, sparse_rank=4), BESIDE),
        (replace(OWN, sparse_rank=None), BESIDE),
    ],
)
def test_a_text_that_does_not_lead_its_language_is_not_raised(own: Candidate, beside: Candidate) -> None:
    judged = judge(ask("How do I change the model?"), [own, beside, TWIN], BY_COSINE)
    assert judged[0].probability < judged[2].probability


@pytest.mark.parametrize(
    ("question", "corrected"),
    [
        ("brekfast time?", "breakfast time?"),
        ("any resturants", "any restaurant"),
        ("wifi pasword and brekfast", "wifi password and breakfast"),
        ("Braekfast 几点", "breakfast 几点"),
        ("breaxfast", "breakfast"),
        ("breakkfast", "breakfast"),
        ("breakfasts", "breakfasts"),
        ("where does my horse sleep", "where does my horse sleep"),  # a word, not a typing error
        ("the paitry", "the paitry"),  # pastry or pantry?
        ("brkfst", "brkfst"),
        ("mail brekfast@inn.example", "mail brekfast@inn.example"),
        ("早餐几点", "早餐几点"),
    ],
)
def test_a_word_with_one_wrong_letter_is_respelled_as_the_documents_write_it(
    question: str, corrected: str
) -> None:
    """Discriminates: changing words that exist, one of two that are as near, addresses."""
    texts = ["Breakfast is at 8 in the house. No restaurant.", "Wi-Fi password. Pastry. Pantry."]
    assert respelled(question, texts) == corrected


def test_respelling_costs_little() -> None:
    """20 passages, as often as a turn does it."""
    texts = [" ".join(f"{word}{at}x" for at in range(100)) for word in ("alpha", "beta", "gamma") * 7]
    respelled("what about the brekfast", texts)
    with at_most(0.1):
        for _ in range(50):
            respelled("what about the brekfast", texts)
