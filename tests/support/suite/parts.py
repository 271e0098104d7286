"""The parts of the suite: their commands and durations."""

from __future__ import annotations

from dataclasses import dataclass

Command = tuple[str, ...]
# The tests of a file share a server and a browser. For two cores; a third worker works while others wait.
ORDER = ("-p", "tests.support.suite.order")
TOGETHER = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", *ORDER)


@dataclass(frozen=True, slots=True)
class Part:
    """`checks` run first, one after another; `background` runs during the tests; `tests` are the arguments of
    each pytest run. `minutes` is the wall time of the whole part on two quiet cores; measure it and keep it
    up to date."""

    minutes: int
    checks: tuple[Command, ...]
    background: Command | None
    tests: tuple[Command, ...]


PARTS = {
    "quick": Part(
        minutes=8,
        checks=(("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",)),
        background=("mypy",),
        tests=((*TOGETHER, "-m", "not full and not alone"),),
    ),
    "full": Part(
        minutes=14,
        checks=(),
        background=None,
        tests=((*TOGETHER, "-m", "full and not alone"), (*ORDER, "-m", "alone")),
    ),
}
