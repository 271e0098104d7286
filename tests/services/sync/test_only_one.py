from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.errors import ConflictError
from tests.services.sync.parts import Bench, open_bench
from tests.support.environment import ROOT


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as opened:
        yield opened


@contextmanager
def another_process(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that syncs."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.servers.sync_process", str(data_dir)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def test_a_second_process_is_refused_with_the_owner_of_the_lock(bench: Bench) -> None:
    """Discriminates: omitting the file lock."""
    bench.write("a.md")
    sync = bench.sync()
    with another_process(bench.data_dir) as process:
        with pytest.raises(ConflictError, match=rf"another process \(process {process.pid}, since 20"):
            await sync.run()
        assert not (await sync.state()).running
        assert bench.knowledge.calls == []
    assert (await sync.run())[0].added == 1  # it was killed, which released its lock


async def test_after_a_run_another_process_may_sync(bench: Bench) -> None:
    await bench.run()
    with another_process(bench.data_dir):
        pass
