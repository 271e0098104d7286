"""F3: the server is killed in the middle of an ingestion."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from core.knowledge import DocumentStatus
from services.adapters.edge_client import open_edge_client
from tests.support.knowledge import ME, open_bench

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("after_chunks", [1, 100, 10_000])
async def test_after_a_kill_a_document_is_all_there_or_failed_without_a_chunk(
    tmp_path: Path, after_chunks: int
) -> None:
    await ingest_until_killed(tmp_path, after_chunks)
    async with open_edge_client(tmp_path) as store, open_bench(store) as bench:
        recovered = await bench.knowledge.recover()
        (document,) = (await bench.knowledge.list_documents(ME, 10)).documents
        if document.status is DocumentStatus.READY:
            assert recovered == 0
            assert await bench.chunk_count(ready=True) == document.chunk_count > 100
        else:
            assert (document.status, recovered) == (DocumentStatus.FAILED, 1)
            assert await bench.chunk_count() == 0
        assert await bench.knowledge.recover() == 0


async def ingest_until_killed(folder: Path, after_chunks: int) -> None:
    """Killed when that many chunks are stored, or right after the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.killed_ingestion", str(folder),
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout
    async for line in process.stdout:
        if line.strip().isdigit() and int(line) >= after_chunks:
            os.kill(process.pid, signal.SIGKILL)
            break
    await process.wait()
