"""A pytest plugin that runs the files whose tests take seconds first: their servers and browsers start while
there is other work, and at the end the workers wait for each other no longer than a small file takes.

Loaded with `-p tests.support.suite.order`, with `--no-loadscope-reorder`: xdist's own order begins with the
files of many tests, which are the quick ones.
"""

from __future__ import annotations

import pytest

FIRST = ("tests/e2e/", "tests/scripts/", "tests/browser/", "tests/cookbook/", "tests/routes/", "tests/api/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Within a folder the order stays."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(test: str) -> int:
    """Of its folder in FIRST; all others come after."""
    return next((at for at, folder in enumerate(FIRST) if test.startswith(folder)), len(FIRST))
