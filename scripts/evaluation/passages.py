"""Whether what was found holds the answer's own words: how well documents are cut, not only found.

Larger chunks hold more, so beside the first chunks stands what fits into the same room of a prompt.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.prompt.budget import estimate_tokens
from scripts.evaluation.figures import Answer
from scripts.evaluation.sets import plain

FEW = 5
ROOMS = (500, 1_000, 2_000)
COLUMNS = (
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
    rows = [_one(answer) for answer in asked]
    first, five, *rooms = (statistics.fmean(column) for column in zip(*rows, strict=True))
    sizes = [estimate_tokens(chunk) for answer in asked for chunk in answer.chunks[:FEW]]
    return Passages(len(asked), first, five, tuple(rooms), int(statistics.median(sizes or [0])))


def passages_table(rows: Iterable[tuple[str, Passages | None]]) -> str:
    """Markdown: one line per set that says which phrases it is after."""
    lines = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, row in rows:
        if row:
            shares = (f"{share:.3f}" for share in (row.first, row.five, *row.rooms))
            lines.append((name, str(row.questions), *shares, str(row.tokens)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _one(answer: Answer) -> tuple[bool, ...]:
    """In the first chunk, in the first five, in each room."""
    used = 0
    for rank, chunk in enumerate(answer.chunks, start=1):
        used += estimate_tokens(chunk)
        if any(phrase in plain(chunk) for phrase in answer.question.phrases):
            return (rank == 1, rank <= FEW, *(used <= room for room in ROOMS))
    return (False,) * (2 + len(ROOMS))
