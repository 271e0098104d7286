"""Rank the earlier turns that a question is about: three lists fused by score, then one probability each.

The measurements, and their test sets, are recorded beside the constants; scripts/commands/evaluate.py repeats
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.relevance.sparse import question_terms, terms
from core.text import is_mostly_chinese

# Chats repeat the words that matter, and short texts have little else: words count once, and meaning less,
# shared by a turn's two vectors. Chosen on one set of long chats (LoCoMo, R@5 .57 by words alone, .58 with
# meaning) and confirmed on another (REALTALK, .54 and .56); on turns made from CMRC 2018 and XQuAD's Chinese
# half, recall is unchanged. By ranks alone (RRF) the same lists give .50 and .51.
WORDS_SHARE = 1.0
MEANING_SHARE = 0.35
# The answer to a question is often next to the turn with matching words, so a turn is lifted by the two
# before and the two after it on the branch. LoCoMo .58 → .62, REALTALK .56 → .57.
NEIGHBOUR_WEIGHTS = {1: 0.2, 2: 0.1}

# A turn is relevant to the question with probability sigmoid(z + 5 coverage − 3.8), where z is how many
# widths its better cosine lies above unrelated texts, and coverage is the share of the question's words that
# the turn has. Fitted on turns of MTRAG, MTRAG-UN, CMRC 2018 and XQuAD (the first four of a ranking, with and
# without a turn of the same conversation or passage in the session; 5,816 pairs with multilingual-e5-small,
# 3,088 with all-MiniLM-L6-v2), then rounded. Expected calibration error .015 and .027.
COVERAGE_WEIGHT = 5.0
INTERCEPT = -3.8
# At .2, as for passages, it keeps .61 (MTRAG-UN) to .95 (CMRC) of the related turns, and .05 to .19 of the
# unrelated ones among the first four, most of those on the same subject. The previous rule, a cosine of .83,
# kept .47 of the related ones in CMRC and .58 in XQuAD's Chinese half.
DEFAULT_THRESHOLD = 0.2
# In another language than the question's hardly a word can match, so coverage is at least this. A Chinese
# question then keeps .4 of its related English turns, and .1 of the others among the first four.
FOREIGN_COVERAGE = 0.25
LANGUAGE_CHARS = 200
UNKNOWN_Z = 1.0  # for a turn without a vector yet: between related (2.1) and unrelated (.3)

Scores = Sequence[tuple[str, float]]
"""Turn ids with their scores in one list, best first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """An embedder's cosines: those of unrelated texts, and how far related ones lie above."""

    unrelated: float
    width: float


# E5 models are trained at a temperature that leaves all their cosines between .7 and 1.
E5 = Spread(0.80, 0.036)
MINILM = Spread(0.15, 0.16)
ANY = Spread(0.25, 0.16)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A turn retrieved for a question. `cosine` is the better of its two vectors', None if it has none."""

    turn_id: str
    score: float
    cosine: float | None


def spread_of(embedding: str) -> Spread:
    """Look up the spread by the embedder's name; an unknown one gets ordinary values."""
    name = embedding.lower()
    if "e5-" in name:
        return E5
    return MINILM if "minilm" in name else ANY


def rank_turns(
    question: Scores, turn: Scores, words: Scores, positions: Mapping[str, int], depth: int
) -> list[Ranked]:
    """Rank turns of the branch, best first; ties go to the later one.

    `question` and `turn` are cosines to the turns' two vectors, `words` BM25 sums; `positions` are indexes on
    the branch, and ids without one are skipped. A list of `depth` or more was truncated there.
    """
    lists = [[(turn_id, score) for turn_id, score in each if turn_id in positions] for each in
             (question, turn, words)]  # fmt: skip
    own: dict[str, float] = {}
    for shares, weight in (
        (_spread_out(lists[0]), MEANING_SHARE),
        (_spread_out(lists[1]), MEANING_SHARE),
        (_of_best(lists[2]), WORDS_SHARE),
    ):
        for turn_id, share in shares:
            own[turn_id] = own.get(turn_id, 0.0) + weight * share
    cosines = _cosines(lists[:2], own, depth)
    lifted = _with_neighbours(own, positions)
    return [
        Ranked(turn_id, lifted[turn_id], cosines.get(turn_id))
        for turn_id in sorted(own, key=lambda turn_id: (-lifted[turn_id], -positions[turn_id]))
    ]


class QuestionMatch:
    """Judges the relevance of turns to one question."""

    def __init__(self, question: str, spread: Spread) -> None:
        self._spread = spread
        self._chinese = is_mostly_chinese(question)
        self._weights = {term.text: term.weight for term in question_terms(question)}

    def chance(self, cosine: float | None, text: str) -> float:
        """Return the probability 0…1 that the turn with this text is relevant to the question."""
        z = UNKNOWN_Z if cosine is None else (cosine - self._spread.unrelated) / self._spread.width
        total = z + COVERAGE_WEIGHT * self._coverage(text) + INTERCEPT
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))

    def _coverage(self, text: str) -> float:
        possible = sum(self._weights.values())
        if not possible:
            return 0.0
        shared = set(terms(text)) & self._weights.keys()
        coverage = sum(self._weights[term] for term in shared) / possible
        foreign = is_mostly_chinese(text[:LANGUAGE_CHARS]) != self._chinese
        return max(coverage, FOREIGN_COVERAGE) if foreign else coverage


def _spread_out(scores: Scores) -> Scores:
    """Scale the last to 0 and the first to 1: absolute cosines are not comparable across questions."""
    if not scores:
        return scores
    lowest, highest = scores[-1][1], scores[0][1]
    width = highest - lowest
    return [(turn_id, (score - lowest) / width if width > 0 else 0.0) for turn_id, score in scores]


def _of_best(scores: Scores) -> Scores:
    """Scale by the best score: a BM25 sum is 0 if nothing matches."""
    best = scores[0][1] if scores else 0.0
    return [(turn_id, score / best if best > 0 else 0.0) for turn_id, score in scores]


def _with_neighbours(own: Mapping[str, float], positions: Mapping[str, int]) -> dict[str, float]:
    at = {positions[turn_id]: score for turn_id, score in own.items()}
    return {
        turn_id: score
        + math.fsum(
            share * (at.get(positions[turn_id] - far, 0.0) + at.get(positions[turn_id] + far, 0.0))
            for far, share in NEIGHBOUR_WEIGHTS.items()
        )
        for turn_id, score in own.items()
    }


def _cosines(lists: Sequence[Scores], turn_ids: Iterable[str], depth: int) -> dict[str, float]:
    """Return the better of each turn's two cosines, either of which may be unknown.

    A turn missing from a truncated list scored at most the list's last score, so that is assumed.
    """
    floor = max((each[-1][1] for each in lists if len(each) >= depth), default=None)
    cosines = {} if floor is None else dict.fromkeys(turn_ids, floor)
    for each in lists:
        for turn_id, cosine in each:
            cosines[turn_id] = max(cosine, cosines.get(turn_id, cosine))
    return cosines
