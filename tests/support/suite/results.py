"""A pytest plugin that records failed tests, and lists slow tests without a stated reason.

Loaded with `-p tests.support.suite.results --results FILE`; with xdist only the controller writes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

SLOW_S = 2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="the file for the ids of the failed tests")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--results")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(path), "suite-results")


class Results:
    """Collects the reports of all workers; the file holds a JSON list of node ids."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, None] = {}
        self._took_s: defaultdict[str, float] = defaultdict(float)
        self._explained: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None
        if report.when == "call":
            self._took_s[report.nodeid] += report.duration
        if "slow" in report.keywords or "full" in report.keywords:
            self._explained.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps([*self._failed]), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        slow = {test: took_s for test, took_s in self._took_s.items() if took_s > SLOW_S}
        silent = sorted((took_s, test) for test, took_s in slow.items() if test not in self._explained)
        if not silent:
            return
        terminalreporter.section(f"over {SLOW_S:.0f} s without the marker slow(reason)")
        for took_s, test in reversed(silent):
            terminalreporter.write_line(f"{took_s:6.1f} s {test}")
