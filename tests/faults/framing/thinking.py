"""G9, splitter: thinking and answer are separated in the same way, however the stream is split."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.text import TextScrubber
from core.thinking import ThinkSplitter
from tests.faults.outcome import Fault, Outcome

TEXTS = 200
PARTS = (
    *("<think>", "</think>", "<THINK >", "</Thinking\t>", "<thinking>", "< think>", "<think", "</thi", "nk>"),
    *("<", "</", ">", "`", "```", "```py\n", "~~~", "~~~~\n", "\n", "\n", "\r\n", "\r", " ", "    ", "\t"),
    *(
        "\u3000",
        "\u2028",
        "\ud83d",
        "\ude00",
        "\0",
        "\u0130",
        "\u212a",
        "a",
        "word ",
        "答案。",
        "\n- x\n",
        "> ",
    ),
)


@dataclass(frozen=True, slots=True)
class Split:
    """The complete result of a stream of deltas."""

    pieces: tuple[tuple[bool, str], ...]
    unclosed: bool
    stray_closer: bool
    assumed: bool


def split(chunks: Iterable[str], begins_thinking: bool) -> Split:
    """Pass through scrubber and splitter, like an answer; adjacent pieces of one kind are joined.

    Raises ValueError for an empty piece.
    """
    scrubber, splitter = TextScrubber(), ThinkSplitter(begins_thinking)
    pieces = [piece for chunk in chunks for piece in splitter.feed(scrubber.feed(chunk))]
    pieces += [*splitter.feed(scrubber.flush()), *splitter.flush()]
    if not all(piece.text for piece in pieces):
        raise ValueError("an empty piece")
    grouped = itertools.groupby(pieces, key=lambda piece: piece.thinking)
    joined = tuple((kind, "".join(piece.text for piece in group)) for kind, group in grouped)
    return Split(joined, splitter.unclosed, splitter.stray_closer, splitter.assumed)


def run(trials: int, folder: Path, seed: int) -> Outcome:
    """Every way to split each of the texts in two, and `trials` random ways to split them into any number."""
    rng = random.Random(seed)
    outcome = Outcome()
    texts = ["".join(rng.choices(PARTS, k=rng.randint(5, 40))) for _ in range(TEXTS)]
    for text, begins in itertools.product(texts, (False, True)):
        whole = split([text], begins)
        for at in range(len(text) + 1):
            _compare(outcome, whole, [text[:at], text[at:]], begins)
    outcome.figures["two-way splits"] = outcome.trials
    for _ in range(trials):
        text, begins = rng.choice(texts), rng.random() < 0.5
        edges = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(1, len(text))))
        chunks = [text[a:b] for a, b in itertools.pairwise([0, *edges, len(text)])]
        _compare(outcome, split([text], begins), chunks, begins)
    outcome.figures["random partitions"] = trials
    return outcome


def _compare(outcome: Outcome, whole: Split, chunks: list[str], begins: bool) -> None:
    outcome.trials += 1
    if split(chunks, begins) != whole:
        outcome.losses.append(f"begins_thinking={begins}: {chunks!r} is split otherwise than in one piece")


SPLITTER = Fault("G9 splitter", "every partition is split alike", run, short=2_000, long=50_000)
FAULTS = (SPLITTER,)
