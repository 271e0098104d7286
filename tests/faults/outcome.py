"""The outcome of a fault's trials, and the declaration of a fault: the same code runs short in CI and long by
hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(slots=True)
class Outcome:
    """Counts over all trials; `losses` must be empty: one line for each broken promise, with its seed.

    `worst_s` is the longest duration of any bounded operation, `figures` are other values worth printing.
    """

    trials: int = 0
    losses: list[str] = field(default_factory=list)
    worst_s: float = 0.0
    figures: dict[str, float | int | str] = field(default_factory=dict)

    def expect(self, is_kept: bool, promise: str) -> None:
        """Note a broken promise."""
        if not is_kept:
            self.losses.append(promise)

    def took(self, seconds: float) -> None:
        self.worst_s = max(self.worst_s, seconds)

    def count(self, name: str, number: int = 1) -> None:
        """Add to a figure."""
        self.figures[name] = int(self.figures.get(name, 0)) + number

    def worst(self, name: str, seconds: float) -> None:
        """Keep the longest time as a figure."""
        self.figures[name] = max(float(self.figures.get(name, 0)), round(seconds, 2))


@dataclass(frozen=True, slots=True)
class Fault:
    """`run(trials, folder, seed)` causes the fault `trials` times; `folder` is an empty folder of its own.

    `name` begins with the number of the threat or goal; `short` trials run in CI, `long` with `make faults`.
    """

    name: str
    promise: str
    run: Callable[[int, Path, int], Outcome]
    short: int
    long: int

    def check(self, folder: Path, seed: int, least: float = 0.9) -> None:
        """The short form: at least `least` of its trials were made, and no promise was broken."""
        outcome = self.run(self.short, folder, seed)
        if reason := outcome.figures.get("skipped"):
            pytest.skip(str(reason))
        assert outcome.trials >= self.short * least, f"{outcome.trials} of {self.short} trials"
        assert not outcome.losses, "\n".join(outcome.losses[:10])
