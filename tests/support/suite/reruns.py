"""A pytest run with a rule for flaky tests.

A failed test is rerun once in isolation, in a separate process with nothing else running. If it passes then,
it is printed as FLAKY and the run continues; more than three such tests still make the run red.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MAX_FLAKY = 3
MAX_RERUNS = 10  # if more tests fail, something is broken, and reruns would only cost time
RERUN_S = 600
_SLOWEST = ("--durations", "15", "--durations-min", "2")


def passes(arguments: Sequence[str], folder: Path) -> bool:
    """Run pytest in `folder`, then rerun each failed test in isolation. Prints the verdict; True is green."""
    failed = _failed(arguments, folder)
    if failed is None:
        return False
    if len(failed) > MAX_RERUNS:
        print(f"{len(failed)} tests failed: too many to rerun.", flush=True)
        return False
    broken = [test for test in failed if not _passes_alone(test, folder)]
    flaky = [test for test in failed if test not in broken]
    for test in broken:
        print(f"FAILED twice {test}")
    for test in flaky:
        print(f"FLAKY {test}")
    if len(flaky) > MAX_FLAKY:
        print(f"{len(flaky)} flaky tests; at most {MAX_FLAKY} are allowed.")
    sys.stdout.flush()
    return not broken and len(flaky) <= MAX_FLAKY


def _failed(arguments: Sequence[str], folder: Path) -> list[str] | None:
    """The ids of the failed tests; None if the run itself did not finish."""
    with tempfile.TemporaryDirectory() as results:
        file = Path(results) / "failed.json"
        plugin = ("-p", "tests.support.suite.results", "--results", str(file))
        code = subprocess.run(_pytest(*plugin, *_SLOWEST, *arguments), cwd=folder, check=False).returncode
        if code not in (0, 1) or not file.exists():
            return None
        failed: list[str] = json.loads(file.read_text(encoding="utf-8"))
    return failed if bool(failed) == bool(code) else None


def _passes_alone(test: str, folder: Path) -> bool:
    print(f"rerunning in isolation: {test}", flush=True)
    try:
        return subprocess.run(_pytest(test), cwd=folder, check=False, timeout=RERUN_S).returncode == 0
    except subprocess.TimeoutExpired:  # such as a failed test's thread that waits forever
        return False


def _pytest(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", *arguments)
