"""How good a ranked list is, and how well a probability shows that there is nothing to find.

Recall is the mean fraction of the relevant documents; the gain of nDCG is `rel`, its discount log2; a
document counts once; a question without a list counts 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scripts.evaluation.sets import Question
from scripts.training.numbers import auroc, calibration_error

TOP = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """Documents found for a question, best first, with their scores; `ms` without embedding it.

    `chunks` are the texts of all chunks found, best first.
    """

    question: Question
    ranked: Sequence[tuple[str, float]]
    ms: float = 0.0
    chunks: Sequence[str] = ()

    @property
    def best(self) -> tuple[str, float]:
        """The highest score and its document; ("", 0) when nothing was found."""
        return max(self.ranked, key=lambda scored: scored[1], default=("", 0.0))


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Over the answerable questions that have relevant documents."""

    questions: int
    recall_1: float
    recall_5: float
    recall_10: float
    ndcg_10: float
    mrr_10: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusing is the positive class: precision is how many of the refused have no answer."""

    answerable: int
    unanswerable: int
    precision: float
    recall: float
    f1: float
    balanced_accuracy: float


def retrieval(answers: Sequence[Answer]) -> Retrieval | None:
    """None when no question is answerable and judged."""
    scored = [answer for answer in answers if answer.question.answerable and answer.question.gold]
    if not scored:
        return None
    rows = [_one([line for line, _ in answer.ranked], answer.question.gold) for answer in scored]
    return Retrieval(len(rows), *(statistics.fmean(column) for column in zip(*rows, strict=True)))


def refusal(answers: Sequence[Answer], threshold: float) -> Refusal | None:
    """A question is refused when nothing reaches the threshold. None without questions of both kinds."""
    accepted = [answer.best[1] >= threshold for answer in answers if answer.question.answerable]
    wrong = [answer.best[1] >= threshold for answer in answers if not answer.question.answerable]
    if not accepted or not wrong:
        return None
    refused_rightly, refused = wrong.count(False), wrong.count(False) + accepted.count(False)
    precision = refused_rightly / refused if refused else 0.0
    recall = refused_rightly / len(wrong)
    both = precision + recall
    return Refusal(
        answerable=len(accepted),
        unanswerable=len(wrong),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / both if both else 0.0,
        balanced_accuracy=(accepted.count(True) / len(accepted) + recall) / 2,
    )


def separation(answers: Sequence[Answer]) -> float | None:
    """The area under the ROC curve of the best score against `answerable`; None without both kinds."""
    right = [answer.best[1] for answer in answers if answer.question.answerable]
    wrong = [answer.best[1] for answer in answers if not answer.question.answerable]
    return auroc(right, wrong) if right and wrong else None


def top_calibration(answers: Sequence[Answer]) -> float | None:
    """Expected calibration error (ten bins) of the best probability against that document's relevance.

    Answerable questions without judged documents say nothing about it and are left out.
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
    """The value below which this share of them lies (nearest rank); 0 of none."""
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
