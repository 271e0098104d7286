"""The features of a question's candidates: a row for each, and one for all of them together.

They measure which of the question's words a text has, how close together, and what the search's lists say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.knowledge import Candidate, FormMatch
from core.relevance.meaning import (
    MIN_WEIGHT,
    Floats,
    TextWords,
    coverage,
    nearest_tokens,
    nearness,
    parts_in,
    translated,
    unpacked,
)
from core.relevance.names import identifiers
from core.relevance.query import Query, wording
from core.relevance.sparse import (
    CACHED_TEXTS,
    CHARACTER_WEIGHT,
    Hits,
    covered_nearby,
    folded,
    hits_in,
    is_cjk,
    question_terms,
    terms_in,
)
from core.text import QUESTION_WORD, holds_chinese, is_for_reader

Matrix = npt.NDArray[np.float64]
MAX_QUESTION_CHARS = 400  # of a form, for matching; enough for the subject of a longer question
MAX_ANSWER_CHARS = 800  # of the last answer; enough for its subject
MAX_TERMS = 160
MAX_TEXT_CHARS = 8_000  # of a candidate; far longer than any chunk
NEAR_CHARS = 160  # about a sentence in an alphabetic script
NEAR_CHARS_CJK = 60


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """The terms of a question and of its context.

    `rows`: the weight of each term in the question as asked, in the previous one, in all previous ones, and
    in the last answer.
    """

    terms: list[str]
    rows: Matrix
    _cjk: Mapping[str, int]
    _latin: Mapping[str, int]

    @classmethod
    def of(cls, query: Query) -> QuestionWords:
        previous = query.previous
        texts = [query.forms[0].text, *previous[-1:], *([""] if not previous else []), " ".join(previous)]
        weighted = [_weights(text[-MAX_QUESTION_CHARS:]) for text in texts] + [
            _weights(query.last_answer[:MAX_ANSWER_CHARS])
        ]
        # sorted, so that the same words in another form reuse the hits
        terms = sorted([*dict.fromkeys(term for form in weighted for term in form)][:MAX_TERMS])
        rows = np.array([[form.get(term, 0.0) for term in terms] for form in weighted]).reshape(4, -1)
        numbers = {term: number for number, term in enumerate(terms)}
        cjk = {term: number for term, number in numbers.items() if is_cjk(term)}
        return cls(terms, rows, cjk, {term: numbers[term] for term in terms if term not in cjk})

    def hits(self, text: str) -> Hits:
        return hits_in(text[:MAX_TEXT_CHARS], self._latin, self._cjk)


@lru_cache(maxsize=CACHED_TEXTS)
def _foreignness(beginning: str, chinese: bool) -> tuple[bool, bool]:
    """Return whether it is in the other language, and in that alone; a text without letters is in neither."""
    foreign = holds_chinese(beginning) != chinese and any(map(str.isalpha, beginning))
    return foreign, foreign and not is_for_reader(beginning, chinese)


def _weights(text: str) -> dict[str, float]:
    return {term.text: term.weight for term in question_terms(text)}


FORMS = ("question", "previous", "conversation")
FORM_FEATURES = ("dense_lead", "dense_gap", "dense_rank", "sparse_share", "sparse_rank")
WORD_FEATURES = (
    "near", "rare_near", "coverage", "previous_coverage", "conversation_coverage", "answer_coverage",
    "numbers_missing",
)  # fmt: skip
# In another language than the question's, words say nothing and the cosine must decide alone.
FOREIGN_FEATURES = (
    "foreign", "foreign_dense", "foreign_lead", "foreign_gap", "foreign_top_lead", "foreign_rank",
    "foreign_beside_own",  # texts in the question's language are candidates, too
    "foreign_beside_words",  # how much of the question the best of those has
)  # fmt: skip
FEATURES = (
    "dense", *(f"{form}_{name}" for form in FORMS for name in FORM_FEATURES), *WORD_FEATURES, "fused",
    "agreement", "length", *FOREIGN_FEATURES,
)  # fmt: skip
QUESTION_FEATURES = (
    "top_dense", "ten_dense", "dense_by_words", "overlap", "covered", "rare_covered", "foreign",
    "foreign_top_lead",
)  # fmt: skip
# Of a candidate's tokens compared with the question's, if both are known.
TOKEN_FEATURES = ("tokens", "tokens_lead", "tokens_gap", "tokens_foreign")
# Meaningful only for the embedder they were fitted on.
ABSOLUTE_FEATURES = ("dense", "foreign_dense", "top_dense", "ten_dense", "dense_by_words")

AHEAD = 10.0  # 11 / (10 + rank): 1 for the first, .37 for the twentieth
AGREED = 5  # ranks that count as agreement
FIRST = 10  # top candidates of a list, which show whether there is an answer at all
NEAREST = 5
FEW_WORDS = 1.0  # of its own: with fewer, a question needs the previous one
USUAL_OVERLAP, USUAL_COVERED, USUAL_RARE = 0.4, 0.5, 0.6  # for questions that have an answer
LANGUAGE_CHARS = 600  # of a text with its heading, enough to detect its language
# A question followed by text that is not one: a table of contents has only questions.
_ASKS = re.compile(
    rf"^[ \t*_#>-]*(?:{QUESTION_WORD}[ ]?\d{{0,3}}[ ]?[:：.、．])?([^\n?？]{{2,150}}[?？])"
    r"(?!\]\()(?=[\s*_>#-]*[^\s*_>#?？-][^\n?？]*$)",
    re.MULTILINE,
)
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")


@dataclass(frozen=True, slots=True)
class Level:
    """The cosines between questions in one language and random texts in the same or another."""

    mean: float
    deviation: float


Levels = Mapping[tuple[bool, bool], Level]
"""(question is Chinese, text is Chinese) → level: each pair of languages has its own."""
NO_LEVELS: Levels = {}
RAW = Level(0.0, 1.0)


class Texts(NamedTuple):
    """What each candidate's text shares with the question, whatever the other candidates: the costly part.
    `alone`: it is in the other language, and not in both; `here`: the terms in it or above it; `tokens`: None
    if the question's or any candidate's are unknown, since one without could not be compared; `gains`: how
    much nearer its nearest part is, None likewise; `translated`: the share of the question's words in the
    other language that it has by dictionary, NaN if unknown; `numbers_missing`: the share of the question's
    numbers that it lacks."""

    foreign: Matrix
    alone: Matrix
    translated: Matrix
    hits: npt.NDArray[np.object_]
    here: Matrix
    near: Matrix
    numbers_missing: Matrix
    tokens: Floats | None
    gains: Matrix | None


class Features:
    """`rows`: candidates × FEATURES; `question`: as QUESTION_FEATURES. Needs at least one candidate.

    Cosines are in deviations from the level of their pair of languages, so that a translation does not rank
    lower for its language alone; without `levels` they are raw. `abroad` is how far a text is judged by the
    level of the other language, 0…1: as far as it lacks the question's words. Otherwise a Chinese text that
    contains the product's name, and is near an English question for that alone, would pass the English text
    that answers.

    Why? and 它呢？ have no words to search for: there the form joined with the previous question replaces the
    question.
    """

    def __init__(
        self,
        query: Query,
        candidates: Sequence[Candidate],
        levels: Levels = NO_LEVELS,
        other: Features | None = None,
    ) -> None:
        """`other`: features of another form of the question with the same candidates. Its tokens and, if the
        words are the same, their positions are reused."""
        self._chinese, self._words = query.is_chinese, QuestionWords.of(query)
        asked, previous, *_ = self._words.rows
        self._asked = int(asked.sum() < FEW_WORDS and len(query.forms) > 1)
        self._weight = asked + self._asked * previous
        self.query, self._levels = query, levels
        self._compare(candidates, self._read(candidates, other))

    def joined(self) -> Features:
        """Replace the question's own form with the one joined with the previous question."""
        each = [replace(one, matches=(*one.matches[1:2], *one.matches[1:])) for one in self.candidates]
        return Features(self.query.joined(), each, self._levels, self)

    def among(self, at: Sequence[int]) -> Features:
        """Return features of some candidates, compared only with each other; texts are not read again."""
        some, texts = copy(self), (None if each is None else each[at] for each in self._texts)
        some._compare([self.candidates[number] for number in at], Texts._make(texts))
        return some

    def _compare(self, candidates: Sequence[Candidate], texts: Texts) -> None:
        self.candidates, self._texts, self.foreign = candidates, texts, texts.foreign
        self.translated, self.alone = texts.translated, texts.alone
        self.coverage = _covered(self._weight, texts.here)
        self.abroad = texts.foreign * (1.0 - self.coverage)
        # terms that no candidate has weigh most
        self._rare = np.log1p((len(candidates) + 1) / (texts.here.sum(axis=0) + 0.5))
        self._mean, self._deviation = level_between(self._levels, self._chinese, self.abroad)
        self._dense, self._columns = self._forms()

    def _read(self, candidates: Sequence[Candidate], other: Features | None) -> Texts:
        tokens = other._texts.tokens if other else self._nearest_tokens(candidates)
        if other and other._words.terms == self._words.terms:
            hits, here = other._texts.hits, other._texts.here
        else:
            hits, here = self._term_hits(candidates)
        languages = [self._foreignness(candidate) for candidate in candidates]
        foreign, alone = np.array(languages, dtype=float).T
        return Texts(
            foreign, alone, self._translated(candidates, foreign, alone), hits, here,
            self._nearby(self._weight, hits), self._numbers_missing(candidates), tokens,
            None if tokens is None else self._gains(candidates),
        )  # fmt: skip

    def _term_hits(self, candidates: Sequence[Candidate]) -> tuple[npt.NDArray[np.object_], Matrix]:
        """Return where each text has the question's terms, and which of them it or its heading has."""
        hits = [self._words.hits(candidate.chunk.text) for candidate in candidates]
        above, count = [candidate.chunk.above for candidate in candidates], len(self._words.terms)
        heads = {text: self._words.hits(text).here(count) for text in dict.fromkeys(above)}
        here = [np.maximum(each.here(count), heads[text]) for each, text in zip(hits, above, strict=True)]
        return np.array(hits), np.array(here).reshape(len(hits), count)

    def _nearest_tokens(self, candidates: Sequence[Candidate]) -> Floats | None:
        asked = self.query.tokens
        packed = [unpacked(each.signs, asked.states.shape[1]) for each in candidates] if asked else [b""]
        return nearest_tokens(asked, packed) if asked and all(packed) else None

    def _translated(self, candidates: Sequence[Candidate], foreign: Matrix, alone: Matrix) -> Matrix:
        """A text in both languages has the question's own words, so their translations are no evidence."""
        shares = np.full(len(candidates), np.nan)
        words = translated(self.query.forms[self._asked].text[-MAX_QUESTION_CHARS:]) if alone.any() else ()
        for side in (np.flatnonzero(each) for each in (foreign == 0, alone) if words):
            chunks = [candidates[at].chunk for at in side.tolist()]
            texts = [TextWords.of(chunk.above, chunk.text[:MAX_TEXT_CHARS]) for chunk in chunks]
            shares[side] = coverage(words, texts)
        return shares

    def tokens(self, levels: Levels) -> Matrix | None:
        """Return candidates × TOKEN_FEATURES, in deviations from the level of their pair of languages."""
        if self._texts.tokens is None or self.query.tokens is None:
            return None
        mean, deviation = level_between(levels, self._chinese, self.abroad)
        level = (nearness(self.query.tokens, self._texts.tokens) - mean) / deviation
        return np.column_stack([level, level - level.mean(), level - level.max(), self.abroad * level])

    @property
    def part_gains(self) -> Matrix:
        """How much nearer the nearest part of each text is than the whole, in deviations and relative to the
        mean; 0 if any text's parts are unknown, since it would rank lower for that alone."""
        gains: Matrix = np.zeros(1) if self._texts.gains is None else self._texts.gains / self._deviation
        return np.asarray(gains - gains.mean())

    def _gains(self, candidates: Sequence[Candidate]) -> Matrix | None:
        meant, gains = self.query.meant, np.zeros(len(candidates))
        form = np.asarray(self.query.forms[meant].dense, np.float32)
        for at, candidate in enumerate(candidates):
            parts, whole = parts_in(candidate.signs, len(form)), _match(candidate, meant).dense
            if parts is None or whole is None:
                return None
            gains[at] = (parts @ form).max() - whole if len(parts) else 0.0
        return gains

    def _foreignness(self, candidate: Candidate) -> tuple[bool, bool]:
        chunk = candidate.chunk
        return _foreignness(f"{chunk.heading} {chunk.text[:LANGUAGE_CHARS]}"[:LANGUAGE_CHARS], self._chinese)

    def _forms(self) -> tuple[Matrix, Sequence[Matrix]]:
        """Return the cosines of the first form, and the columns of all."""
        last = max(len(candidate.matches) for candidate in self.candidates) - 1
        numbers = [max(0, min(last, max(number, self._asked))) for number in range(len(FORMS))]
        by_number = {number: self._form(number) for number in dict.fromkeys(numbers)}
        return by_number[numbers[0]][0], [*chain(*(by_number[number][1] for number in numbers))]

    @property
    def rows(self) -> Matrix:
        return np.array([self._dense, *self._columns, *self._of_words(), *self._others()]).T

    def _form(self, number: int) -> tuple[Matrix, Sequence[Matrix]]:
        """Return the cosines, and the columns of FORM_FEATURES; a missing form repeats the last one."""
        matches = [_match(candidate, number) for candidate in self.candidates]
        known = [match.dense for match in matches if match.dense is not None]
        floor = min(known, default=None)  # texts that no dense list returned lie below all that it did
        cosines = np.array([floor if match.dense is None else match.dense for match in matches], dtype=float)
        dense = (np.where(np.isnan(cosines), self._mean, cosines) - self._mean) / self._deviation
        sparse = np.array([match.sparse for match in matches])
        share = sparse / sparse.max() if sparse.max() > 0 else sparse
        dense_rank, sparse_rank = zip(*((m.dense_rank, m.sparse_rank) for m in matches), strict=True)
        lead, gap = dense - dense.mean(), dense - dense.max()
        return dense, (lead, gap, _ahead(dense_rank), share, _ahead(sparse_rank))

    @property
    def answered(self) -> Matrix:
        """How much each text has of the last answer's words, weighted by rarity, 0…1."""
        return _covered(self._words.rows[3] * self._rare, self._texts.here)

    @property
    def asks_itself(self) -> npt.NDArray[np.bool_]:
        """Which texts contain the question, as FAQs do: in a line with the same words, stop words aside but
        including why, when and the like, followed by text that is not a question."""
        asked = _words_of(self.query.question[-MAX_QUESTION_CHARS:])
        has_all = (self.coverage > 0.99) & (len(asked) > 1)
        texts = [
            candidate.chunk.indexed_text if has else ""
            for candidate, has in zip(self.candidates, has_all, strict=True)
        ]
        return np.array([any(_words_of(line) == asked for line in _ASKS.findall(text)) for text in texts])

    def rare_nearby(self, at: int) -> float:
        """Return how much of the question this text has in one place, weighted by rarity, 0…1."""
        return float(self._nearby(self._weight * self._rare, self._texts.hits[at : at + 1])[0])

    def _of_words(self) -> Sequence[Matrix]:
        """Return the columns of WORD_FEATURES."""
        texts, (_, previous, conversation, _) = self._texts, self._words.rows
        earlier = (_covered(weight, texts.here) for weight in (previous, conversation))
        rarest = self._nearby(self._weight * self._rare, texts.hits)
        return (texts.near, rarest, self.coverage, *earlier, self.answered, texts.numbers_missing)

    def _nearby(self, weight: Matrix, hits: Iterable[Hits]) -> Matrix:
        width = NEAR_CHARS_CJK if self._chinese else NEAR_CHARS
        shares = weight / weight.sum() if weight.sum() > 0 else weight
        return np.array([covered_nearby(shares, each, width) for each in hits])

    def _numbers_missing(self, candidates: Sequence[Candidate]) -> Matrix:
        numbers = set(_NUMBER.findall(folded(self.query.forms[0].text)))
        if not numbers:
            return np.zeros(len(candidates))
        texts = [folded(candidate.chunk.indexed_text) for candidate in candidates]
        return np.array([sum(number not in text for number in numbers) / len(numbers) for text in texts])

    def _others(self) -> Sequence[Matrix]:
        """Return the columns from "fused" on."""
        dense, foreign, near = self._dense, self.foreign, self._texts.near
        matches = [_match(candidate, self._asked) for candidate in self.candidates]
        agreed = [(m.dense_rank or 99) <= AGREED and (m.sparse_rank or 99) <= AGREED for m in matches]
        wide = 2.5 if self._chinese else 1.0
        length = np.log([20 + wide * len(candidate.chunk.text) for candidate in self.candidates])
        lead, gap = dense - dense.mean(), dense - dense.max()
        top_lead = np.full(len(dense), dense.max() - dense.mean())
        return (
            1.0 / np.arange(1, len(dense) + 1),
            np.array(agreed, dtype=float),
            length,
            foreign,
            *(foreign * column for column in (dense, lead, gap, top_lead)),
            foreign * _ahead([match.dense_rank for match in matches]),
            foreign * (1.0 - foreign).max(),
            foreign * (near * (1.0 - foreign)).max(),
        )

    @property
    def question(self) -> Matrix:
        """Return one row, as in QUESTION_FEATURES: how much evidence there is, whichever candidate is best.

        If the nearest texts are in another language, words are no evidence: they then count as usual, neither
        much nor little.
        """
        dense = self._dense
        first = min(FIRST, -(-len(dense) // 2))  # most of a small collection is irrelevant
        best = np.sort(dense)[::-1]
        matches = [_match(candidate, self._asked) for candidate in self.candidates]
        by_words = [at for at, match in enumerate(matches) if (match.sparse_rank or 99) <= first]
        overlap = sum((matches[at].dense_rank or 99) <= first for at in by_words) / first
        covered = np.sort(self.coverage)[::-1][: min(NEAREST, -(-first // 2))].mean()
        abroad = float(self.foreign[np.argsort(-dense, kind="stable")[:NEAREST]].mean())
        abroad *= bool(self._words.terms)  # an emoji belongs to no language
        ten = float(best[:first].mean())
        worded = float(dense[by_words].mean()) if by_words else float(best[-1])
        rare = _covered(self._weight * self._rare, self._texts.here)
        rarest = rare[self.foreign == 0].max(initial=0.0)
        own = np.array([worded, overlap, covered, rarest])
        usual = np.array([ten, USUAL_OVERLAP, USUAL_COVERED, USUAL_RARE])
        return np.array(
            [best[0], ten, *(own + abroad * (usual - own)), abroad, abroad * (best[0] - dense.mean())]
        )


def level_between(levels: Levels, chinese: bool, abroad: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and deviation for each text, interpolated between the levels of its two languages."""
    home, other = (levels.get((chinese, chinese ^ is_other), RAW) for is_other in (False, True))
    mean = home.mean + abroad * (other.mean - home.mean)
    return mean, home.deviation + abroad * (other.deviation - home.deviation)


def _match(candidate: Candidate, number: int) -> FormMatch:
    """Return the match of this form, or of the last; candidates from elsewhere have only totals."""
    if not candidate.matches:
        return FormMatch(
            candidate.dense, candidate.dense_rank, candidate.sparse or 0.0, candidate.sparse_rank
        )
    return candidate.matches[min(number, len(candidate.matches) - 1)]


def asks_only_of(codes: Iterable[str], question: str, text: str) -> bool:
    """Whether its other words are in the text or have no meaning of their own: my phone shows AP-4037."""
    return not wording("how_much").search(question) and not own_terms(codes, question, text)


def own_terms(codes: Iterable[str], question: str, text: str = "", least: float = MIN_WEIGHT) -> list[str]:
    """Return the question's other terms with meaning of their own that the text lacks."""
    for code in codes:
        question = re.sub(re.escape(code), " ", question, flags=re.IGNORECASE)
    lowered, places = terms_in(text[:MAX_TEXT_CHARS])
    words = [each.text for each in question_terms(question) if each.weight >= least]
    own = (word for word in words if not wording("beside_code").fullmatch(word))
    return [word for word in own if word not in (lowered if is_cjk(word) else places)]


def code_alone(question: str) -> str:
    """Return the only code of a question that asks nothing else (what it is, what it costs); no version."""
    codes = identifiers(question)
    if len(codes) != 1 or "." in codes[0]:
        return ""
    at, own = question.lower().find(codes[0]), own_terms(codes, question, least=CHARACTER_WEIGHT)
    return question[at : at + len(codes[0])] if all(map(wording("of_code").fullmatch, own)) else ""


def _covered(weight: Matrix, here: Matrix) -> Matrix:
    """Return the weighted share of terms that each text has."""
    total = weight.sum()
    shares: Matrix = here @ weight / total if total > 0 else np.zeros(len(here))
    return shares


def _words_of(text: str) -> set[str]:
    return {term.text for term in question_terms(text)}.union(wording("asks_what").findall(text.lower()))


def _ahead(ranks: Sequence[int | None]) -> Matrix:
    return np.array([0.0 if rank is None else (AHEAD + 1.0) / (AHEAD + rank) for rank in ranks])
