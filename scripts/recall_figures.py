"""Sets of long chats, and the figures of what was recalled from them."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = 10
COLUMNS = ("set", "list", "questions", "R@5", "R@10", "nDCG@10", "MRR@10", "told", "ms p50", "ms p99")


@dataclass(frozen=True, slots=True)
class Question:
    question_id: str
    text: str
    scope: str
    gold: Mapping[str, float]
    answerable: bool


@dataclass(frozen=True, slots=True)
class ChatSet:
    """`lines` by scope: ids and texts, in order."""

    name: str
    lines: Mapping[str, Sequence[tuple[str, str]]]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Answered:
    """Line ids, best first, with their scores; `ms` is what the product's recall took."""

    question: Question
    ranked: Sequence[tuple[str, float]]
    kept: Sequence[tuple[str, float]]
    ms: float


def load(folder: Path) -> ChatSet:
    lines: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in _rows(folder / "corpus.jsonl"):
        lines[row["scope"]].append((row["id"], row["text"]))
    gold: dict[str, dict[str, float]] = defaultdict(dict)
    for row in _rows(folder / "qrels.jsonl"):
        if row["rel"] > 0:
            gold[row["query_id"]][row["doc_id"]] = row["rel"]
    questions = [
        Question(row["id"], row["text"], row["scope"], gold[row["id"]], bool(row["answerable"]))
        for row in _rows(folder / "queries.jsonl")
    ]
    return ChatSet(folder.name, lines, questions)


def figures(ranked: Sequence[Sequence[str]], gold: Sequence[Mapping[str, float]]) -> list[float]:
    """Means of R@5, R@10, nDCG@10 and MRR@10."""
    rows = [_figures_of(ids, wanted) for ids, wanted in zip(ranked, gold, strict=True)]
    return [statistics.mean(column) for column in zip(*rows, strict=True)]


def _figures_of(ids: Sequence[str], gold: Mapping[str, float]) -> tuple[float, float, float, float]:
    gains = [gold.get(each, 0.0) for each in ids[:TOP]]
    best = sorted(gold.values(), reverse=True)[:TOP]
    found = [sum(gain > 0 for gain in gains[:top]) / len(gold) for top in (5, TOP)]
    first = next((1 / rank for rank, gain in enumerate(gains, start=1) if gain > 0), 0.0)
    return found[0], found[1], _dcg(gains) / _dcg(best), first


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def report(name: str, answered: Sequence[Answered]) -> Iterator[str]:
    """Of the answerable questions, two lines: by order alone, and by what reaches the threshold."""
    scored = [each for each in answered if each.question.answerable and each.question.gold]
    gold = [each.question.gold for each in scored]
    times = sorted(each.ms for each in answered)
    p50, p99 = statistics.median(times), times[min(len(times) - 1, int(len(times) * 0.99))]
    for kind in ("ranked", "kept"):
        lists = [[line for line, _ in (each.ranked if kind == "ranked" else each.kept)] for each in scored]
        cells = [name, kind, str(len(scored)), *(f"{value:.3f}" for value in figures(lists, gold))]
        told = statistics.mean(len(lines) for lines in lists)
        yield f"| {' | '.join([*cells, f'{told:.1f}', f'{p50:.1f}', f'{p99:.1f}'])} |"


def write_run(folder: Path, name: str, answered: Sequence[Answered]) -> None:
    """NAME.jsonl by order alone and NAME.kept.jsonl: {query_id, ranked, scores} per question."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, lists in (
        ("", [each.ranked for each in answered]),
        (".kept", [each.kept for each in answered]),
    ):
        with (folder / f"{name}{suffix}.jsonl").open("w", encoding="utf-8") as run:
            for each, found in zip(answered, lists, strict=True):
                ids, scores = [line for line, _ in found], [round(score, 5) for _, score in found]
                row = {"query_id": each.question.question_id, "ranked": ids, "scores": scores}
                run.write(json.dumps(row, ensure_ascii=False) + "\n")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
