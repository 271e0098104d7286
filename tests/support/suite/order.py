"""A pytest plugin that runs the files whose tests take seconds first: their servers and browsers start while
there is other work, and at the end the workers wait for each other no longer than a small file takes.

It also leaves out the files that have no test of the part that runs.

Loaded with `-p tests.support.suite.order`, with `--no-loadscope-reorder`: xdist's own order begins with the
files of many tests, which are the quick ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FIRST = ("tests/e2e/", "tests/scripts/", "tests/browser/", "tests/cookbook/", "tests/routes/", "tests/api/")

MARKS = {"full and not alone": "mark.full", "alone": "mark.alone"}  # by what `-m` asks for


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without a test of this part is not imported; None asks pytest's own rules."""
    mark = MARKS.get(config.option.markexpr)
    if mark is None or not collection_path.is_file() or collection_path.suffix != ".py":
        return None
    return mark not in collection_path.read_text("utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Within a folder the order stays."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(test: str) -> int:
    """Of its folder in FIRST; all others come after."""
    return next((at for at, folder in enumerate(FIRST) if test.startswith(folder)), len(FIRST))
