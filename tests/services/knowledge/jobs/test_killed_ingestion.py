"""F3: the server is killed while ingesting a document, or a new version of one.

Discriminates: publishing a version before it is complete; removing old chunks before the record is replaced;
a start that forgets accepted uploads, or half a swap.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from core.knowledge import Document, DocumentStatus
from services.adapters.edge.client import open_edge_client
from tests.support.servers.killed_ingestion import ingest
from tests.support.stores.knowledge import ME, TEXT, Bench, open_bench

ROOT = Path(__file__).parents[4]
OLD, NEW = "\n\n".join([TEXT] * 3), "\n\n".join([TEXT.replace("退款", "换货")] * 3)
EACH_KILL = pytest.mark.full("starts processes that read documents")
FIRST = [(where, False) for where in ("ingest.batch:2", "ingest.published", "ingest.replaced")]
CHANGE = [
    (where, True) for where in ("ingest.batch:2", "ingest.published", "ingest.replaced", "ingest.removed")
]


@pytest.mark.full("starts processes that read documents")
@pytest.mark.parametrize(("where", "is_change"), [*FIRST, *CHANGE])
async def test_an_accepted_upload_is_complete_after_the_next_start(
    tmp_path: Path, where: str, is_change: bool
) -> None:
    document = await killed(tmp_path, where, is_change=is_change, source="")
    assert document is not None
    assert (document.status, document.error) == (DocumentStatus.READY, None)
    assert document.text_is_new


@pytest.mark.slow("kills a process that reads a document, and starts another")
@pytest.mark.parametrize(
    ("where", "is_change"),
    [FIRST[2], *(pytest.param(*each, marks=EACH_KILL) for each in (FIRST[1], CHANGE[1]))],
)
async def test_a_followed_file_is_unchanged_or_complete(tmp_path: Path, where: str, is_change: bool) -> None:
    """The next sync reads it again."""
    document = await killed(tmp_path, where, is_change=is_change, source="folder")
    was_replaced = where == "ingest.replaced"
    if is_change or was_replaced:
        assert document.status is DocumentStatus.READY
        assert document.text_is_new == was_replaced
    else:
        assert (document.status, document.content_hash) == (DocumentStatus.FAILED, "")


class Stored:
    def __init__(self, document: Document, text: str) -> None:
        self.status, self.error = document.status, document.error
        self.content_hash = document.content_hash
        self.text_is_new = "换货" in text


async def killed(folder: Path, where: str, *, is_change: bool, source: str) -> Stored:
    """Return the document after the following start, when all work has ended; nothing else is stored."""
    if is_change:
        await ingest(folder, OLD, source)
    text = folder / "text"
    text.write_text(NEW, "utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.servers.killed_ingestion", str(folder), str(text), source,
        cwd=ROOT, env={**os.environ, "WENMAI_FAILPOINT": where}, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == -signal.SIGKILL
    async with open_edge_client(folder / "store") as store, open_bench(store, data_dir=folder) as bench:
        await bench.knowledge.recover()
        await expect_whole_versions(bench, at_least=int(is_change))
        for job in bench.knowledge.jobs.list(ME):
            await bench.knowledge.wait(job.job_id, ME)
        (document,) = (await bench.knowledge.documents.page(ME, 10)).documents
        chunks = (await bench.knowledge.chunks(document.document_id, ME, 500)).chunks
        assert len(chunks) == document.chunk_count
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == document.chunk_count
        assert await bench.knowledge.recover() == 0
        return Stored(document, "".join(chunk.text for chunk in chunks))


async def expect_whole_versions(bench: Bench, at_least: int) -> None:
    """What is searched right after the start: complete versions of 120 passages each."""
    assert await bench.chunk_count(ready=True) in [120 * number for number in range(at_least, 3)]
