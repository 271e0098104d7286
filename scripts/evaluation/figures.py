"""Figures: quality of a ranked list, how well probabilities reveal unanswerable questions, and whether the
chunks contain the answer's own words.

Recall is the mean fraction of the relevant documents; the gain of nDCG is `rel`, its discount log2; a
document counts once; a question without a list counts 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.prompt.budget import estimate_tokens
from core.relevance.features import Matrix
from core.relevance.probability import least_shown
from scripts.evaluation.sets import Question, plain

BINS = TOP = 10


def ndcg(labels: Matrix, gold: int) -> float:
    return _dcg(labels[:TOP].tolist()) / _dcg([1.0] * min(gold, TOP))


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    better, worse = np.array(positive)[:, None], np.array(negative)[None, :]
    return float((better > worse).mean() + 0.5 * (better == worse).mean())


def calibration_error(chances: Matrix, labels: Matrix) -> float:
    """Expected calibration error over BINS of equal width."""
    at = np.minimum((chances * BINS).astype(int), BINS - 1)
    gaps = [abs(chances[at == b].sum() - labels[at == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(chances))


@dataclass(frozen=True, slots=True)
class Answer:
    """Documents retrieved for a question, best first, with their scores; `ms` excludes embedding.

    `chunks` are the texts of all retrieved chunks, best first.
    """

    question: Question
    ranked: Sequence[tuple[str, float]]
    ms: float = 0.0
    chunks: Sequence[str] = ()

    @property
    def best(self) -> tuple[str, float]:
        """The document with the highest score, and the score; ("", 0) without results."""
        return max(self.ranked, key=lambda scored: scored[1], default=("", 0.0))


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Means over the answerable questions that have relevant documents."""

    questions: int
    recall_1: float
    recall_5: float
    recall_10: float
    ndcg_10: float
    mrr_10: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Shares of refused questions (nothing reaches the threshold), among answerable and unanswerable ones."""

    answerable: int
    unanswerable: int
    refused_wrongly: float
    refused_rightly: float
    balanced_accuracy: float


def retrieval(answers: Sequence[Answer]) -> Retrieval | None:
    """Return None if no question is answerable and judged."""
    scored = [answer for answer in answers if answer.question.answerable and answer.question.gold]
    if not scored:
        return None
    rows = [_one([line for line, _ in answer.ranked], answer.question.gold) for answer in scored]
    return Retrieval(len(rows), *(statistics.fmean(column) for column in zip(*rows, strict=True)))


def above(answers: Sequence[Answer], threshold: float) -> list[Answer]:
    """Return the part of each list that a model would be shown."""
    return [replace(each, ranked=_shown(each, threshold)) for each in answers]


def _shown(answer: Answer, threshold: float) -> list[tuple[str, float]]:
    least = least_shown((chance for _, chance in answer.ranked), threshold, answer.question.text)
    return [one for one in answer.ranked if one[1] >= least]


def refusal(answers: Sequence[Answer], threshold: float) -> Refusal | None:
    """A question is refused if nothing reaches the threshold. None without questions of both kinds."""
    wrongly = [answer.best[1] < threshold for answer in answers if answer.question.answerable]
    rightly = [answer.best[1] < threshold for answer in answers if not answer.question.answerable]
    if not wrongly or not rightly:
        return None
    wrong, right = statistics.fmean(wrongly), statistics.fmean(rightly)
    return Refusal(len(wrongly), len(rightly), wrong, right, (1 - wrong + right) / 2)


def separation(answers: Sequence[Answer]) -> float | None:
    """Return the ROC AUC of the best score against `answerable`; None without questions of both kinds."""
    right = [answer.best[1] for answer in answers if answer.question.answerable]
    wrong = [answer.best[1] for answer in answers if not answer.question.answerable]
    return auroc(right, wrong) if right and wrong else None


def top_calibration(answers: Sequence[Answer]) -> float | None:
    """Return the expected calibration error (ten bins) of the best probability against that document's
    relevance, without answerable questions that have no judged documents.
    """
    judged = [
        answer
        for answer in answers
        if answer.ranked and (answer.question.gold or not answer.question.answerable)
    ]
    if not judged:
        return None
    chances = np.array([answer.best[1] for answer in judged])
    return calibration_error(chances, np.array([float(_is_right(answer)) for answer in judged]))


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which this share lies (nearest rank); 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _is_right(answer: Answer) -> bool:
    return answer.question.answerable and answer.best[0] in answer.question.gold


def _one(ranked: Sequence[str], gold: Mapping[str, float]) -> tuple[float, float, float, float, float]:
    gains = [gold.get(line, 0.0) for line in dict.fromkeys(ranked)][:TOP]
    at_1, at_5, at_10 = (sum(gain > 0 for gain in gains[:top]) / len(gold) for top in (1, 5, TOP))
    best = sorted(gold.values(), reverse=True)[:TOP]
    first = next((1 / rank for rank, gain in enumerate(gains, start=1) if gain > 0), 0.0)
    return at_1, at_5, at_10, _dcg(gains) / _dcg(best), first


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


FIRST_CHUNKS = 5
ROOMS = (500, 1_000, 2_000)
PASSAGE_COLUMNS = (
    "set",
    "questions",
    "in chunk 1",
    f"in 1–{FIRST_CHUNKS}",
    *(f"in {room} tokens" for room in ROOMS),
    "tokens each",
)


@dataclass(frozen=True, slots=True)
class Passages:
    """Shares of the questions whose phrase is in the first chunk, in one of five, and within a token budget.

    Larger chunks contain more, so besides the first chunks, those that fit the same budget are compared.
    `rooms` are the shares by ROOMS; a chunk counts only if all of it fits. `tokens` is the median chunk size.
    """

    questions: int
    first: float
    five: float
    rooms: tuple[float, ...]
    tokens: int


def passages(answers: Sequence[Answer]) -> Passages | None:
    """Return None if no question has phrases."""
    asked = [answer for answer in answers if answer.question.phrases and answer.question.answerable]
    if not asked:
        return None
    rows = [_holds_phrase(answer) for answer in asked]
    first, five, *rooms = (statistics.fmean(column) for column in zip(*rows, strict=True))
    sizes = [estimate_tokens(chunk) for answer in asked for chunk in answer.chunks[:FIRST_CHUNKS]]
    return Passages(len(asked), first, five, tuple(rooms), int(statistics.median(sizes or [0])))


def passages_table(rows: Iterable[tuple[str, Passages | None]]) -> str:
    """Return a Markdown table with one line per set whose questions have phrases."""
    lines: list[Sequence[str]] = []
    for name, row in rows:
        if row:
            shares = (f"{share:.3f}" for share in (row.first, row.five, *row.rooms))
            lines.append((name, str(row.questions), *shares, str(row.tokens)))
    return markdown_table(PASSAGE_COLUMNS, lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def _holds_phrase(answer: Answer) -> tuple[bool, ...]:
    """Whether the phrase is in the first chunk, in the first five, in each of ROOMS."""
    used = 0
    for rank, chunk in enumerate(answer.chunks, start=1):
        used += estimate_tokens(chunk)
        if any(phrase in plain(chunk) for phrase in answer.question.phrases):
            return (rank == 1, rank <= FIRST_CHUNKS, *(used <= room for room in ROOMS))
    return (False,) * (2 + len(ROOMS))
