"""A pytest plugin that runs the files with slow tests first: their servers and browsers start while there is
other work, and at the end the workers wait for each other only as long as a small file takes.

It also skips the files without tests of the part that runs.

Loaded with `-p tests.support.suite.order` and `--no-loadscope-reorder`, because xdist's own order begins with
the files of many tests, which are the quick ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FIRST = ("tests/e2e/", "tests/scripts/", "tests/browser/", "tests/cookbook/", "tests/routes/", "tests/api/")

MARKS = {"full and not alone": "mark.full", "alone": "mark.alone"}  # by the expression given to `-m`


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing files without a test of this part; None applies pytest's own rules."""
    mark = MARKS.get(config.option.markexpr)
    if mark is None or not collection_path.is_file() or collection_path.suffix != ".py":
        return None
    return mark not in collection_path.read_text("utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by folder; the order within a folder is kept."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(test: str) -> int:
    """The position of the test's folder in FIRST; all others come last."""
    return next((at for at, folder in enumerate(FIRST) if test.startswith(folder)), len(FIRST))
