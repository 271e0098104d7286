from dataclasses import replace

import numpy as np
import pytest

from core.relevance.tokens import (
    FREQUENT,
    MAX_QUESTION_TOKENS,
    Floats,
    QuestionTokens,
    TokenMeans,
    TokenStates,
    load_means,
    nearest_tokens,
    nearness,
    parts_in,
    unpacked,
    with_parts,
)

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
