"""The stub and the raw relay as processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.environment import ROOT, clean_environment


@dataclass(frozen=True, slots=True)
class Started:
    url: str
    pid: int
    ready_after_s: float


@contextmanager
def running_module(module: str, *arguments: str) -> Iterator[Started]:
    """Run `python -m module`, whose first printed line is its address."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, f"{module} ended with {process.wait()}"
        yield Started(url, process.pid, time.monotonic() - begun)
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def running_stub() -> Iterator[Started]:
    with running_module("benchmarks.stub_llm") as stub:
        yield stub


@contextmanager
def running_floor(stub_url: str) -> Iterator[Started]:
    with running_module("benchmarks.floor", stub_url) as floor:
        yield floor


@contextmanager
def running_relay(stub_url: str) -> Iterator[Started]:
    with running_module("benchmarks.raw_relay", stub_url) as relay:
        yield relay
