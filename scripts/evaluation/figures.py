"""How good a ranked list is, how well a probability shows that there is nothing to find, and whether the
chunks hold the answer's own words; the table of all that was measured, and the files it is kept in.

Recall is the mean fraction of the relevant documents; the gain of nDCG is `rel`, its discount log2; a
document counts once; a question without a list counts 0.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import RootModel, ValidationError

from core.prompt.budget import estimate_tokens
from core.relevance.features import Matrix
from scripts.evaluation.sets import BadSetError, Question, plain


def ndcg(labels: Matrix, gold: int, top_n: int = 10) -> float:
    discounts = 1 / np.log2(np.arange(2, top_n + 2))
    gained = float(labels[:top_n] @ discounts[: min(top_n, len(labels))])
    return gained / float(discounts[: min(gold, top_n)].sum())


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    better, worse = np.array(positive)[:, None], np.array(negative)[None, :]
    return float((better > worse).mean() + 0.5 * (better == worse).mean())


def calibration_error(chances: Matrix, labels: Matrix, bins: int = 10) -> float:
    """Expected calibration error over equal-width bins."""
    at = np.minimum((chances * bins).astype(int), bins - 1)
    gaps = [abs(chances[at == b].sum() - labels[at == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(chances))


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


FEW = 5
ROOMS = (500, 1_000, 2_000)
PASSAGE_COLUMNS = (
    "set",
    "questions",
    "in chunk 1",
    f"in 1–{FEW}",
    *(f"in {room} tokens" for room in ROOMS),
    "tokens each",
)


@dataclass(frozen=True, slots=True)
class Passages:
    """Shares of the questions whose phrase is in the first chunk, in one of five, and in a room of tokens.

    Larger chunks hold more, so beside the first chunks stands what fits into the same room of a prompt.
    `rooms` goes with ROOMS; a chunk counts only when all of it fits. `tokens` is the median chunk's size.
    """

    questions: int
    first: float
    five: float
    rooms: tuple[float, ...]
    tokens: int


def passages(answers: Sequence[Answer]) -> Passages | None:
    """None when no question says which phrase it is after."""
    asked = [answer for answer in answers if answer.question.phrases and answer.question.answerable]
    if not asked:
        return None
    rows = [_holds_phrase(answer) for answer in asked]
    first, five, *rooms = (statistics.fmean(column) for column in zip(*rows, strict=True))
    sizes = [estimate_tokens(chunk) for answer in asked for chunk in answer.chunks[:FEW]]
    return Passages(len(asked), first, five, tuple(rooms), int(statistics.median(sizes or [0])))


def passages_table(rows: Iterable[tuple[str, Passages | None]]) -> str:
    """Markdown: one line per set that says which phrases it is after."""
    lines = [PASSAGE_COLUMNS, ("---",) * len(PASSAGE_COLUMNS)]
    for name, row in rows:
        if row:
            shares = (f"{share:.3f}" for share in (row.first, row.five, *row.rooms))
            lines.append((name, str(row.questions), *shares, str(row.tokens)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _holds_phrase(answer: Answer) -> tuple[bool, ...]:
    """In the first chunk, in the first five, in each room."""
    used = 0
    for rank, chunk in enumerate(answer.chunks, start=1):
        used += estimate_tokens(chunk)
        if any(phrase in plain(chunk) for phrase in answer.question.phrases):
            return (rank == 1, rank <= FEW, *(used <= room for room in ROOMS))
    return (False,) * (2 + len(ROOMS))


OURS = "wenmai"
COLUMNS = (
    "set", "list", "questions", "R@1", "R@5", "R@10", "nDCG@10", "MRR@10",
    "AUROC", "balanced", "refusal P", "R", "F1", "ECE", "ms",
)  # fmt: skip
NONE = "–"
Published = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Figures of others, by set and name; keys as in COLUMNS."""


@dataclass(frozen=True, slots=True)
class Row:
    """One list's figures. What a list does not say (a raw score is no probability) is None."""

    name: str
    retrieval: Retrieval | None
    auroc: float | None = None
    refusal: Refusal | None = None
    calibration_error: float | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None


@dataclass(frozen=True, slots=True)
class SetReport:
    """`groups` are the same rows for each value of the --by field."""

    name: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    passages: Passages | None = None
    groups: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def our_row(
    name: str,
    answers: Sequence[Answer],
    absent: Sequence[Answer],
    threshold: float,
    times: tuple[float, float],
) -> Row:
    """`absent` are questions asked where their answers are not; refusal and calibration look at both."""
    both = [*answers, *absent]
    return Row(
        name, retrieval(answers), separation(both), refusal(both, threshold), top_calibration(both), *times
    )


def plain_row(name: str, answers: Sequence[Answer]) -> Row:
    return Row(name, retrieval(answers), separation(answers))


def read_published(path: Path) -> Published:
    """baselines.json, when there is one. Raises BadSetError."""
    if not path.is_file():
        return {}
    try:
        return RootModel[dict[str, dict[str, dict[str, float]]]].model_validate_json(path.read_bytes()).root
    except ValidationError as error:
        raise BadSetError(f"{path.name} is not {{set: {{name: {{column: figure}}}}}}") from error


def table(reports: Sequence[SetReport], by: str = "") -> str:
    """Markdown: one line per list, then what there is to say, then the same by group."""
    parts = [_table(_lines(reports)), "\n".join(f"- {r.name}: {note}" for r in reports for note in r.notes)]
    if any(report.passages for report in reports):
        parts.append(passages_table((report.name, report.passages) for report in reports))
    if by and any(report.groups for report in reports):
        parts.append(f"By {by}:\n\n{_table(_group_lines(reports))}")
    return "\n\n".join(filter(None, parts)) + "\n"


def write_run(path: Path, answers: Sequence[Answer]) -> None:
    """{query_id, ranked, scores} per question; `confidence` where the best score does not stand first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as run:
        for answer in answers:
            row: dict[str, Any] = {
                "query_id": answer.question.question_id,
                "ranked": [line for line, _ in answer.ranked],
                "scores": [round(score, 6) for _, score in answer.ranked],
            }
            if answer.ranked and answer.ranked[0][1] < answer.best[1]:
                row["confidence"] = round(answer.best[1], 6)
            run.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_figures(path: Path, reports: Sequence[SetReport]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {report.name: asdict(report) for report in reports}
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _table(lines: Iterator[list[str]]) -> str:
    head = [list(COLUMNS), ["---"] * len(COLUMNS)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (*head, *lines))


def _lines(reports: Sequence[SetReport]) -> Iterator[list[str]]:
    for report in reports:
        for row in report.rows:
            yield [report.name, row.name, *_cells(row)]
        for name, figures in report.published.items():
            cells = [f"{figures[column]:.3f}" if column in figures else NONE for column in COLUMNS[3:]]
            yield [report.name, name, NONE, *cells]


def _group_lines(reports: Sequence[SetReport]) -> Iterator[list[str]]:
    for report in reports:
        for value, rows in sorted(report.groups.items()):
            for row in rows:
                yield [f"{report.name} {value}", row.name, *_cells(row)]


def _cells(row: Row) -> list[str]:
    retrieval, refused = row.retrieval, row.refusal
    figures = [
        *(
            (retrieval.recall_1, retrieval.recall_5, retrieval.recall_10, retrieval.ndcg_10, retrieval.mrr_10)
            if retrieval
            else [None] * 5
        ),
        row.auroc,
        *(
            (refused.balanced_accuracy, refused.precision, refused.recall, refused.f1)
            if refused
            else [None] * 4
        ),
        row.calibration_error,
    ]
    shown = [NONE if value is None else f"{value:.3f}" for value in figures]
    return [
        str(retrieval.questions) if retrieval else "0",
        *shown,
        NONE if row.ms_p50 is None else f"{row.ms_p50:.1f}",
    ]
