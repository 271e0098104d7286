"""The table of all results, and the files they are written to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import RootModel, ValidationError

from scripts.evaluation.figures import (
    Answer,
    Passages,
    Refusal,
    Retrieval,
    above,
    markdown_table,
    passages_table,
    refusal,
    retrieval,
    separation,
    top_calibration,
)
from scripts.evaluation.judging import Outcome, TurnFigures, turns_table
from scripts.evaluation.sets import BadSetError

OURS = "wenmai"
COLUMNS = (
    "set", "list", "questions", "R@1", "R@5", "R@10", "nDCG@10", "MRR@10",
    "shown nDCG@10", "AUROC", "answerable refused", "unanswerable refused", "balanced", "ECE", "ms",
)  # fmt: skip
NONE = "–"
Published = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Published figures of other systems, by set and name; keys as in COLUMNS."""


@dataclass(frozen=True, slots=True)
class Row:
    """One list's figures; None where it has none (a raw score is not a probability).

    `ndcg_10_above` is the nDCG@10 of what reaches the threshold and would be shown to a model.
    """

    name: str
    retrieval: Retrieval | None
    ndcg_10_above: float | None = None
    auroc: float | None = None
    refusal: Refusal | None = None
    calibration_error: float | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None


@dataclass(frozen=True, slots=True)
class SetReport:
    """`groups` are the same rows for each value of the --by field; `turns` are the figures of whole turns by
    language and kind, "" for all."""

    name: str
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    passages: Passages | None = None
    groups: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    turns: Mapping[str, TurnFigures] = field(default_factory=dict)


def our_row(
    name: str,
    answers: Sequence[Answer],
    absent: Sequence[Answer],
    threshold: float,
    times: tuple[float, float],
) -> Row:
    """`absent` are questions asked of collections without their answers; refusal and calibration use both."""
    both, shown = [*answers, *absent], retrieval(above(answers, threshold))
    return Row(
        name,
        retrieval(answers),
        shown.ndcg_10 if shown else None,
        separation(both),
        refusal(both, threshold),
        top_calibration(both),
        *times,
    )


def plain_row(name: str, answers: Sequence[Answer]) -> Row:
    return Row(name, retrieval(answers), auroc=separation(answers))


def read_published(path: Path) -> Published:
    """Read baselines.json if it exists. Raises BadSetError."""
    if not path.is_file():
        return {}
    try:
        return RootModel[dict[str, dict[str, dict[str, float]]]].model_validate_json(path.read_bytes()).root
    except ValidationError as error:
        raise BadSetError(f"{path.name} is not {{set: {{name: {{column: figure}}}}}}") from error


def table(reports: Sequence[SetReport], by: str = "") -> str:
    """Return Markdown: one line per list, then notes, then the same by group, then whole turns."""
    parts = [markdown_table(COLUMNS, _lines(reports))] if any(report.rows for report in reports) else []
    parts.append("\n".join(f"- {r.name}: {note}" for r in reports for note in r.notes))
    if any(report.passages for report in reports):
        parts.append(passages_table((report.name, report.passages) for report in reports))
    if by and any(report.groups for report in reports):
        parts.append(f"By {by}:\n\n{markdown_table(COLUMNS, _group_lines(reports))}")
    if any(report.turns for report in reports):
        parts.append(turns_table((report.name, report.turns) for report in reports))
    return "\n\n".join(filter(None, parts)) + "\n"


def write_run(path: Path, answers: Sequence[Answer]) -> None:
    """Write {query_id, ranked, scores} per question, and `confidence` if the best score is not first."""
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


def write_turns(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write {question, kind, answer, verdict, probability, first, among, prompted, cited, readable,
    in_language}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as run:
        for each in outcomes:
            row: dict[str, Any] = {
                "question": each.question.question,
                "kind": each.question.kind,
                "answer": each.reply.text,
                "verdict": each.reply.verdict,
                "probability": max((hit.probability for hit in each.reply.sources), default=0.0),
            }
            row |= {
                name: getattr(each, name)
                for name in ("first", "among", "prompted", "cited", "readable", "in_language")
            }
            run.write(json.dumps(row, ensure_ascii=False) + "\n")


def figures(reports: Sequence[SetReport]) -> str:
    """Return all reports as JSON, by the set's name."""
    return json.dumps({report.name: asdict(report) for report in reports}, ensure_ascii=False, indent=1)


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
    ranked, refused = row.retrieval, row.refusal
    figures = [
        *(
            (ranked.recall_1, ranked.recall_5, ranked.recall_10, ranked.ndcg_10, ranked.mrr_10)
            if ranked
            else [None] * 5
        ),
        row.ndcg_10_above,
        row.auroc,
        *(
            (refused.refused_wrongly, refused.refused_rightly, refused.balanced_accuracy)
            if refused
            else [None] * 3
        ),
        row.calibration_error,
    ]
    shown = [NONE if value is None else f"{value:.3f}" for value in figures]
    ms = NONE if row.ms_p50 is None else f"{row.ms_p50:.1f}"
    return [str(ranked.questions) if ranked else "0", *shown, ms]
