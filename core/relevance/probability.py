"""How probably a candidate answers the question: features, three small linear models, a threshold.

One raw score cannot refuse: a cosine of 0.85 may be the answer or the least bad of nothing. So candidates are
compared with each other (`candidate`), all of them together show whether there is an answer at all
(`question`), and both together make the probability (`together`). If the tokens of the question and of all
candidates are known, they are added to both scores (`tokens`). The coefficients are fitted by
scripts/training/train.py and shipped as data, with their figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from core.knowledge import Candidate
from core.relevance.features import (
    FEATURES,
    QUESTION_FEATURES,
    TOKEN_FEATURES,
    Features,
    Level,
    Levels,
    Matrix,
    asks_only_of,
    code_alone,
    own_terms,
)
from core.relevance.meaning import dictionary_gains, with_twins
from core.relevance.names import (
    beside_people,
    clauses,
    codes_of_kind,
    identifiers,
    numbered_parts,
    people_in,
    shares,
)
from core.relevance.query import Query, is_for_others, parts_of, wording
from core.relevance.sparse import MIN_WORD_WEIGHT, presence, question_terms

ANY_EMBEDDING = "any"
SCORED = ("score", *TOKEN_FEATURES)
TOPPED = ("score", "top_tokens")
SURE = 0.45  # the best passage's probability from which an answer is sure; below, it is only the closest
NOT_SURE = SURE - 0.01
# Also sure is a passage with at least this probability, this lead over all others, this share of the
# question's words, and this share of them, weighted by rarity, in one place. Found on offices and MTRAG-UN:
# decision 77.
LEADING, LEAD, LED_COVERAGE, LED_NEAR = 0.2, 0.2, 0.5, 0.5
COMPANION_SHARE = 0.5  # of the threshold, for passages shown beside one that reached it
TOKENS_ABROAD = 0.75  # of the other differences between texts in another language: so much is ignored
WORDED = 0.4  # share of the question's words in the text that has most, from which words are full evidence
CLEARLY_ABROAD = 0.5  # deviations by which their tokens are nearer than any in the question's language
# For a text's tokens, in deviations from the level of random texts; and logits for each deviation that the
# nearest lacks. An off-topic question has some words here, too, and one of its cosines is the highest.
NEAR_ENOUGH, NEAR_ENOUGH_ABROAD = 0.4, 0.8
FAR_LOGIT = 1.5
FAR_DENSE, NEAR_DENSE = 2.5, 3.0  # deviations of the best cosine from which this counts less, and not at all
UNKNOWN_SHARE = 0.37  # of a text's distance from sure, in logits: subtracted if no tokens show how near it is
# Logits by which a text with all of the last answer leads one with none of it, for a possible follow-up. From
# .5 to 3, higher values put more right texts first, but 1 loses some of MTRAG-UN's, 1.5 some that change
# topic.
ANSWER_LOGIT = 0.5
# Logits by which a text with all words of such a question leads one with none, if there is one with all: "and
# the printer?" after a question about leave.
ALL_WORDS_LOGIT = 1.5
PART_GAIN = 0.8  # of a score, per deviation by which a part of a text is nearer than the whole
IDENTIFIER_LOGIT = 3.0
PIECE_SHARE = 0.3  # of the best one's probability, for a piece of its section with as many of the words
# Minimum for the best of few passages with every code of the question: "what is E02?" has no other clue.
MIN_NAMED = 0.2
FEW_NAMED = 3


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    coefficient: float
    mean: float
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """intercept + Σ coefficient (x − mean) / scale, over standardised features. Compared by identity, since
    what is derived from it is cached (`_slopes`) and looked up for every question."""

    intercept: float
    features: tuple[Feature, ...]

    def of(self, rows: Matrix, names: tuple[str, ...]) -> Matrix:
        """Evaluate the rows; `names` are those of the columns."""
        start, slopes = _slopes(self, names)
        return np.asarray(start + rows @ slopes)


@lru_cache(maxsize=32)  # each model twice: with all features, and without absolute cosines
def _slopes(model: Linear, names: tuple[str, ...]) -> tuple[float, Matrix]:
    """Return the value of a row of zeros, and what one unit of each column adds."""
    slopes, start = np.zeros(len(names)), model.intercept
    for each in model.features:
        slopes[names.index(each.name)] += each.coefficient / each.scale
        start -= each.coefficient * each.mean / each.scale
    return start, slopes


@dataclass(frozen=True, slots=True)
class Together:
    """The logit of a probability from a candidate's score, the best candidate's, and the question's."""

    intercept: float
    behind_best: float
    best: float
    question: float

    def of(self, scores: Matrix, question: float) -> Matrix:
        best = scores.max()
        behind = self.intercept + self.behind_best * (scores - best)
        return np.asarray(behind + self.best * best + self.question * question)


@dataclass(frozen=True, slots=True)
class TokenCoefficients:
    """What tokens add to the scores of a candidate and of the question, and how both then make the
    probability. `levels` are those of `nearness`."""

    levels: Levels
    candidate: Linear
    question: Linear
    together: Together


@dataclass(frozen=True, slots=True)
class Coefficients:
    """`levels` are empty if the embedding is unknown: its cosines are used raw. `tokens` None: it exposes
    none."""

    embedding: str
    candidate: Linear
    question: Linear
    together: Together
    levels: Levels = field(default_factory=dict)
    tokens: TokenCoefficients | None = None


@lru_cache(maxsize=8)
def load_coefficients(embedding: str) -> Coefficients:
    """Load the coefficients fitted for this embedding, or else those that use no absolute cosine.

    Embedders differ in the spread of their cosines, so for others only ranks, distances within the list and
    words are judged. Source: core/relevance/coefficients/*.json.
    """
    folder = files("core.relevance") / "coefficients"
    source = folder / f"{embedding.replace('/', '_')}.json"
    if not source.is_file():
        source = folder / f"{ANY_EMBEDDING}.json"
    read = json.loads(source.read_text(encoding="utf-8"))
    return Coefficients(
        str(read["embedding"]),
        _linear(read["candidate"]),
        _linear(read["question"]),
        Together(**read["together"]),
        read_levels(read.get("levels", {})),
        _tokens(read["tokens"]) if "tokens" in read else None,
    )


LANGUAGES = {"en": False, "zh": True}


def read_levels(read: Mapping[str, Mapping[str, float]]) -> Levels:
    """Read {"en zh": {"mean": …, "deviation": …}}: the question's language, then the text's."""
    pairs = {name: tuple(LANGUAGES[each] for each in name.split()) for name in read}
    return {(asked, text): Level(**read[name]) for name, (asked, text) in pairs.items()}


def judge(query: Query, candidates: Sequence[Candidate], coefficients: Coefficients) -> list[Candidate]:
    """Return the candidates with their probability, in the given order; about 2 ms for 20 of them, more for a
    possible follow-up: it is judged alone and joined with the previous question, both count the same, and
    texts with less of the last answer rank lower.

    Candidates in no list, the nearest in another language, count only if none of the others is sure: their
    presence would change a translation's probability.
    """
    if not candidates:
        return []
    features, joined = Features(query, candidates, coefficients.levels), None
    chances = _judged(features, coefficients)
    if query.may_lean:
        answered, joined = features.answered, features.joined()
        chances = _between(chances, _judged(joined, coefficients))
        chances = _raised(chances, ANSWER_LOGIT * (answered - answered.max()))
        if features.coverage.max() > 0.99:
            chances = _raised(chances, ALL_WORDS_LOGIT * (features.coverage - 1.0))
    chances = np.where(features.asks_itself, np.maximum(chances, SURE), chances)
    chances = _without_attribute(features, _with_leader(features, chances))
    chances = _with_pieces(features.candidates, (joined or features).coverage, chances)
    chances = _by_person(query, candidates, chances)
    return [
        replace(candidate, probability=float(chance))
        for candidate, chance in zip(candidates, chances, strict=True)
    ]


def _judged(features: Features, coefficients: Coefficients) -> Matrix:
    ranks = [{each.dense_rank, each.sparse_rank} for each in features.candidates]
    listed = [at for at, known in enumerate(ranks) if known != {None}]
    chances = np.zeros(len(ranks))
    if 0 < len(listed) < len(ranks):
        chances[listed] = _chances(features.among(listed), coefficients)
    if chances.max() < SURE:
        chances = _chances(features, coefficients)
    return chances


def _between(one: Matrix, other: Matrix) -> Matrix:
    """Return the mean of the logits, as a probability."""
    return logistic((_logits(one) + _logits(other)) / 2.0)


def _chances(features: Features, coefficients: Coefficients) -> Matrix:
    learnt = coefficients.tokens
    tokens = features.tokens(learnt.levels) if learnt else None
    gains = features.part_gains
    question = features.question
    chances = probabilities(features.rows, question, coefficients, tokens, gains)
    chances = _by_distance(None if tokens is None else tokens[:, 0], features.abroad, question, chances)
    if features.foreign.any():
        chances = _raised(chances, dictionary_gains(features.translated, features.foreign))
        chances = with_twins(features.candidates, chances, features.foreign, features.query.tokens)
    return _by_identifiers(features.query, features.candidates, chances)


def probabilities(
    rows: Matrix,
    question: Matrix,
    coefficients: Coefficients,
    tokens: Matrix | None = None,
    part_gains: Matrix | float = 0.0,
) -> Matrix:
    """0…1, one per row; finite for any finite row. `tokens` are rows of TOKEN_FEATURES, if known;
    `part_gains` count only with them."""
    scores = coefficients.candidate.of(rows, FEATURES)
    whole = coefficients.question.of(question[None, :], QUESTION_FEATURES)
    together, learnt = coefficients.together, coefficients.tokens
    if tokens is not None and learnt is not None:
        compared = _by_tokens_abroad(scores, tokens, rows[:, FEATURES.index("foreign")])
        compared = _by_tokens_alone(compared, rows[:, FEATURES.index("coverage")])
        scores = learnt.candidate.of(scored(compared, tokens), SCORED) + PART_GAIN * part_gains
        whole = learnt.question.of(topped(whole, tokens), TOPPED)
        together = learnt.together
    return logistic(together.of(scores, float(whole[0])))


def _by_distance(nearness: Matrix | None, abroad: Matrix, question: Matrix, chances: Matrix) -> Matrix:
    """Lower all if not even the nearest text is near enough: the question is about something else. Unless its
    vector is near: the tokens of a story around a question are far from every text."""
    if nearness is None:
        return _raised(chances, UNKNOWN_SHARE * np.minimum(0.0, _logits(chances) - logit(SURE)))
    enough = NEAR_ENOUGH + (NEAR_ENOUGH_ABROAD - NEAR_ENOUGH) * abroad
    top_dense = question[QUESTION_FEATURES.index("top_dense")]
    agreed = np.interp(top_dense, (FAR_DENSE, NEAR_DENSE), (1.0, 0.0))
    return _raised(chances, FAR_LOGIT * agreed * np.minimum(0.0, (nearness - enough).max()))


def _raised(chances: Matrix, logits: Matrix) -> Matrix:
    odds = chances / np.maximum(1.0 - chances, 1e-12) * np.exp(logits)
    raised: Matrix = odds / (1.0 + odds)
    return raised


def _by_tokens_abroad(scores: Matrix, tokens: Matrix, foreign: Matrix) -> Matrix:
    """If the nearest tokens are clearly those of a foreign-language text, compare such texts by their tokens
    rather than by words and the single vector, which say little across languages."""
    own = tokens[foreign == 0, TOKEN_FEATURES.index("tokens_gap")].max(initial=-np.inf)
    if own > -CLEARLY_ABROAD:
        return scores
    compared: Matrix = scores + TOKENS_ABROAD * foreign * (scores.max() - scores)
    return compared


def _by_tokens_alone(scores: Matrix, coverage: Matrix) -> Matrix:
    """The fewer of the question's words any text has, the less other differences count than tokens: which
    texts have two words of a story says little."""
    worded = min(1.0, coverage.max() / WORDED)
    return np.asarray(scores.max() + worded * (scores - scores.max()))


def scored(scores: Matrix, tokens: Matrix) -> Matrix:
    """Return candidates × SCORED."""
    return np.column_stack([scores, tokens])


def topped(whole: Matrix, tokens: Matrix) -> Matrix:
    """Return one row, as in TOPPED."""
    return np.array([[whole[0], tokens[:, 0].max()]])


def apply_threshold(
    candidates: Sequence[Candidate], threshold: float, top_n: int, question: str
) -> list[Candidate]:
    """Return at most `top_n` candidates, in the given order (best first); none if the best is below the
    threshold."""
    least = least_shown((candidate.probability for candidate in candidates), threshold, question)
    return [candidate for candidate in candidates if candidate.probability >= least][:top_n]


def least_shown(chances: Iterable[float], threshold: float, question: str) -> float:
    """Return the least probability to show. Beside a passage that reaches the threshold, half is enough: an
    answer is often in several passages, and only one can be the best. A question that asks several things
    needs even less, as it has a best passage for each."""
    share = COMPANION_SHARE / len(parts_of(question))
    return threshold * share if max(chances, default=0.0) >= threshold else threshold


def _with_leader(features: Features, chances: Matrix) -> Matrix:
    """Make the best one sure if it leads clearly and its words show that it is on the subject."""
    second, best = np.sort(chances)[-2:].tolist() if len(chances) > 1 else (1.0, 0.0)
    at = int(chances.argmax())
    leads = LEADING <= best < SURE and best - second >= LEAD and features.coverage[at] >= LED_COVERAGE
    if not leads or features.rare_nearby(at) < LED_NEAR:
        return chances
    return np.where(np.arange(len(chances)) == at, SURE, chances)


def _without_attribute(features: Features, chances: Matrix) -> Matrix:
    """Make none sure if the best lacks the requested attribute (the salary of an engineer), whatever else it
    says about its owner, or none has what narrows the thing whose price is asked (a gold crown); a text in
    another language cannot be checked."""
    query, at = features.query, int(chances.argmax())
    if query.meant or features.alone[at]:
        return _without_others(features, chances)
    attribute, priced = (wording(name).search(query.question) for name in ("attribute", "priced"))
    texts = [candidate.chunk.indexed_text for candidate in features.candidates]
    terms = question_terms(attribute["zh"] or attribute["en"].split()[-1]) if attribute else ()
    lacks = bool(terms) and not any(presence(terms, texts[at]))
    if priced and not lacks and chances[at] >= SURE:
        lacks = bool(set.intersection(*(set(own_terms((), priced["by"], text)) for text in texts)))
    return _without_others(features, _unsure(chances) if lacks else chances)


def _without_others(features: Features, chances: Matrix) -> Matrix:
    """Lower those that are sure but about others than those asked about: they are at most the closest."""
    sure = np.flatnonzero(chances >= SURE).tolist()
    query, chunks = features.query, {at: features.candidates[at].chunk for at in sure}
    others = [at for at, chunk in chunks.items() if is_for_others(query.question, chunk, query.asked)]
    lowered = chances.copy()
    lowered[others] = _unsure(chances)[others]
    return lowered


def _unsure(chances: Matrix) -> Matrix:
    """Lower those that are sure, in the same order."""
    return np.minimum(chances, NOT_SURE + 0.9 * (SURE - NOT_SURE) * chances)


def _with_pieces(candidates: Sequence[Candidate], coverage: Matrix, chances: Matrix) -> Matrix:
    """Raise the other pieces of the best one's section that have no fewer of the question's words: sections
    are cut for length, and tables are cut off from the text about them."""
    best = int(chances.argmax())
    section = [(each.chunk.document_id, each.chunk.heading) for each in candidates]
    is_piece = np.array([each == section[best] for each in section]) & bool(section[best][1])
    is_piece &= coverage >= max(coverage[best], 1e-9)
    return np.where(is_piece, np.maximum(chances, PIECE_SHARE * chances[best]), chances)


def _by_identifiers(query: Query, candidates: Sequence[Candidate], chances: Matrix) -> Matrix:
    """Among candidates that differ by a part number or an article number, prefer the one with the question's.

    One that lacks it ranks lower only if another has it: its odds are divided by e^IDENTIFIER_LOGIT. The best
    of at most FEW_NAMED that have all of them is shown at least as the closest passage, and is sure if
    nothing else is asked. If other articles begin but not the named one, none is sure.
    """
    names = (*identifiers(query.question), *clauses(query.question))
    parts = numbered_parts(query.question, query.last_answer)
    if not names and not parts:
        return chances
    texts = [candidate.chunk.indexed_text for candidate in candidates]
    code = "" if query.meant else code_alone(query.question)
    if code and not any(map(codes_of_kind(code).search, texts)):
        return np.zeros_like(chances)  # what resembles its other words is irrelevant
    begun = np.array([sum(part.share(text) for part in parts) for text in texts])
    have = (len(names) * np.asarray(shares(names, texts)) + begun) / (len(names) + len(parts))
    judged = _raised(chances, IDENTIFIER_LOGIT * (have - have.max()))
    naming = np.flatnonzero(have == 1.0)
    if 0 < len(naming) <= FEW_NAMED:
        best = naming[judged[naming].argmax()]
        is_the_one = not parts or len(naming) == 1  # every set of rules has a ninth article
        all_names = (*names, *(part.name for part in parts))
        asks_nothing_else = is_the_one and asks_only_of(all_names, query.question, texts[best])
        judged[best] = max(judged[best], SURE if asks_nothing_else else MIN_NAMED)
    is_missing = any(not _begins(part.heads, texts) and _begins(part.alike, texts) for part in parts)
    return _unsure(judged) if is_missing else judged


def _by_person(query: Query, candidates: Sequence[Candidate], chances: Matrix) -> Matrix:
    """Of a follow-up about somebody named before (王师傅；手机号呢), the best of few texts with the name is
    at least the closest, and sure if it has all words of the question beside the name."""
    people = people_in("".join(query.previous[-1:]))[-1:] if query.meant else []
    texts = [candidate.chunk.indexed_text for candidate in candidates]
    naming = [at for at, text in enumerate(texts) if any(name in text for name in people)]
    if not 0 < len(naming) <= FEW_NAMED:
        return chances
    terms = [term for term in question_terms(query.question) if term.weight >= MIN_WORD_WEIGHT]
    beside = [beside_people(texts[at]).get(people[0], "") for at in naming]
    answers = [bool(terms) and all(presence(terms, text)) for text in beside]
    best = max(range(len(naming)), key=lambda one: (answers[one], chances[naming[one]]))
    least = np.where(np.arange(len(chances)) == naming[best], SURE if answers[best] else MIN_NAMED, 0.0)
    return np.maximum(chances, least)


def _begins(part: re.Pattern[str], texts: Sequence[str]) -> bool:
    return any(part.search(text) for text in texts)


def _tokens(read: Mapping[str, Any]) -> TokenCoefficients:
    candidate, question = _linear(read["candidate"]), _linear(read["question"])
    return TokenCoefficients(read_levels(read["levels"]), candidate, question, Together(**read["together"]))


def _linear(read: Mapping[str, Any]) -> Linear:
    return Linear(float(read["intercept"]), tuple(Feature(**feature) for feature in read["features"]))


MIN_CHANCE = 1e-6  # clip: a probability of 0 or 1 has no logit


def logistic(logits: Matrix) -> Matrix:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0))))


def _logits(chances: Matrix) -> Matrix:
    bounded = np.clip(chances, MIN_CHANCE, 1.0 - MIN_CHANCE)
    logits: Matrix = np.log(bounded / (1.0 - bounded))
    return logits


def logit(chance: float) -> float:
    return float(_logits(np.array(chance)))
