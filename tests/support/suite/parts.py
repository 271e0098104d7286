"""What each part of the suite consists of, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

Command = tuple[str, ...]
# The tests of a file share a server and a browser. Two cores; a third worker works while others wait.
ORDER = ("-p", "tests.support.suite.order")
TOGETHER = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", *ORDER)


@dataclass(frozen=True, slots=True)
class Part:
    """`checks` run first, one after another; `beside` runs while the tests do; `tests` are the arguments of
    each pytest run. `minutes` is the wall clock of the whole part on two quiet cores: measure and mend it."""

    minutes: int
    checks: tuple[Command, ...]
    beside: Command | None
    tests: tuple[Command, ...]


PARTS = {
    "quick": Part(
        minutes=8,
        checks=(("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",)),
        beside=("mypy",),
        tests=((*TOGETHER, "-m", "not full and not alone"),),
    ),
    "full": Part(
        minutes=14,
        checks=(),
        beside=None,
        tests=((*TOGETHER, "-m", "full and not alone"), (*ORDER, "-m", "alone")),
    ),
}
