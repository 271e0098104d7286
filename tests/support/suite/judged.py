"""One pytest run, judged by the rule for a test that fails once.

A failed test is run once more by itself, in a process of its own with nothing beside it. If it passes then,
it is printed as FLAKY and the run goes on; more than three such tests make the run red all the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_FLAKY = 3
MOST_TRIED = 10  # when more fail than this, something is broken: trying again only costs time
_SLOWEST = ("--durations", "15", "--durations-min", "2")


def passes(arguments: Sequence[str], folder: Path) -> bool:
    """Run pytest in `folder`, then each test that failed by itself. Prints the verdict; True is green."""
    failed = _failed(arguments, folder)
    if failed is None:
        return False
    if len(failed) > MOST_TRIED:
        print(f"{len(failed)} tests failed: too many to try each once more.", flush=True)
        return False
    broken = [test for test in failed if not _passes_alone(test, folder)]
    flaky = [test for test in failed if test not in broken]
    for test in broken:
        print(f"FAILED twice {test}")
    for test in flaky:
        print(f"FLAKY {test}")
    if len(flaky) > MOST_FLAKY:
        print(f"{len(flaky)} flaky tests; {MOST_FLAKY} are allowed.")
    sys.stdout.flush()
    return not broken and len(flaky) <= MOST_FLAKY


def _failed(arguments: Sequence[str], folder: Path) -> list[str] | None:
    """The ids of the tests that failed; None when the run itself did not come to its end."""
    with tempfile.TemporaryDirectory() as results:
        file = Path(results) / "failed.json"
        plugin = ("-p", "tests.support.suite.results", "--results", str(file))
        code = subprocess.run(_pytest(*plugin, *_SLOWEST, *arguments), cwd=folder, check=False).returncode
        if code not in (0, 1) or not file.exists():
            return None
        failed: list[str] = json.loads(file.read_text(encoding="utf-8"))
    return failed if bool(failed) == bool(code) else None


def _passes_alone(test: str, folder: Path) -> bool:
    print(f"once more, by itself: {test}", flush=True)
    return subprocess.run(_pytest(test), cwd=folder, check=False).returncode == 0


def _pytest(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", *arguments)
