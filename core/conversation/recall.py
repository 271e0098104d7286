"""Which earlier turns a question is about: three lists fused by their scores, then one probability each.

What was measured, and on which sets, stands with the constants; scripts/commands/evaluate.py measures it
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.relevance.sparse import question_terms, terms
from core.text import is_mostly_chinese

# Chats repeat the words that matter, and short texts have little else: words count once, meaning less, shared
# by its two vectors. Chosen on one set of long chats (LoCoMo, R@5 .57 by words alone, .58 with meaning) and
# confirmed on another (REALTALK, .54 and .56); on turns made of CMRC 2018 and XQuAD's Chinese half it finds
# as much as before. By ranks alone (RRF) the same lists give .50 and .51.
WORDS_SHARE = 1.0
MEANING_SHARE = 0.35
# What answers a question often stands beside the words that match it, so a turn is lifted by the two before
# and the two after it on the branch. LoCoMo .58 → .62, REALTALK .56 → .57.
BESIDE = {1: 0.2, 2: 0.1}

# A turn belongs to the question with the probability sigmoid(z + 5 coverage − 3.8), where z is how many
# widths its better cosine lies above unrelated texts, and coverage is the share of the question's words that
# the turn has. Learnt on turns of MTRAG, MTRAG-UN, CMRC 2018 and XQuAD (the first four of a ranking, with and
# without a turn of the same conversation or passage in the session; 5,816 pairs with multilingual-e5-small,
# 3,088 with all-MiniLM-L6-v2), then rounded. Expected calibration error .015 and .027.
COVERAGE_WEIGHT = 5.0
INTERCEPT = -3.8
# At .2, as for passages, it keeps .61 (MTRAG-UN) to .95 (CMRC) of the related turns, and .05 to .19 of the
# unrelated ones that rank among the first four, most of those on the same subject. The cosine of .83 alone
# that was used before kept .47 of them in CMRC and .58 in XQuAD's Chinese half.
DEFAULT_THRESHOLD = 0.2
# In another language than the question's hardly a word can match. Taken for this share, a Chinese question
# keeps .4 of what it is about among English turns, and .1 of the others among the first four.
FOREIGN_COVERAGE = 0.25
LANGUAGE_CHARS = 200
UNKNOWN_Z = 1.0  # of a turn that has no vector yet: between the related (2.1) and the unrelated (.3)

Scores = Sequence[tuple[str, float]]
"""Turn ids with the score of one list, best first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """An embedder's cosines: what unrelated texts have, and how far the related lie above that."""

    unrelated: float
    width: float


# E5 models are trained at a temperature that leaves all their cosines between .7 and 1.
E5 = Spread(0.80, 0.036)
MINILM = Spread(0.15, 0.16)
ANY = Spread(0.25, 0.16)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A turn found for a question. `cosine` is the better of its two vectors', None when it has none."""

    turn_id: str
    score: float
    cosine: float | None


def spread_of(embedding: str) -> Spread:
    """By the embedder's name; one that is not known is taken for an ordinary one."""
    name = embedding.lower()
    if "e5-" in name:
        return E5
    return MINILM if "minilm" in name else ANY


def rank_turns(
    question: Scores, turn: Scores, words: Scores, positions: Mapping[str, int], depth: int
) -> list[Ranked]:
    """Turns of the branch, best first; ties go to the later one.

    `question` and `turn` are cosines to the turns' two vectors, `words` BM25 sums; `positions` are the places
    on the branch, and ids without one are left out. A list of `depth` or more was cut there.
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
    """Judges turns for one question."""

    def __init__(self, question: str, spread: Spread) -> None:
        self._spread = spread
        self._chinese = is_mostly_chinese(question)
        self._weights = {term.text: term.weight for term in question_terms(question)}

    def chance(self, cosine: float | None, text: str) -> float:
        """The probability 0…1 that the turn with this text belongs to the question."""
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
    """0 for the last of the list, 1 for the first: a cosine's height says nothing across questions."""
    if not scores:
        return scores
    lowest, highest = scores[-1][1], scores[0][1]
    width = highest - lowest
    return [(turn_id, (score - lowest) / width if width > 0 else 0.0) for turn_id, score in scores]


def _of_best(scores: Scores) -> Scores:
    """Shares of the best: a BM25 sum is 0 where nothing matches."""
    best = scores[0][1] if scores else 0.0
    return [(turn_id, score / best if best > 0 else 0.0) for turn_id, score in scores]


def _with_neighbours(own: Mapping[str, float], positions: Mapping[str, int]) -> dict[str, float]:
    at = {positions[turn_id]: score for turn_id, score in own.items()}
    return {
        turn_id: score
        + math.fsum(
            share * (at.get(positions[turn_id] - far, 0.0) + at.get(positions[turn_id] + far, 0.0))
            for far, share in BESIDE.items()
        )
        for turn_id, score in own.items()
    }


def _cosines(lists: Sequence[Scores], turn_ids: Iterable[str], depth: int) -> dict[str, float]:
    """The better of a turn's two, which may be unknown.

    What a cut list does not hold is at most what it ends with, and is taken for that.
    """
    floor = max((each[-1][1] for each in lists if len(each) >= depth), default=None)
    cosines = {} if floor is None else dict.fromkeys(turn_ids, floor)
    for each in lists:
        for turn_id, cosine in each:
            cosines[turn_id] = max(cosine, cosines.get(turn_id, cosine))
    return cosines
