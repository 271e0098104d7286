"""Runs with the real knowledge base, over the reference engine and over the embedded one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from config.settings import StoreSettings
from config.tables import SourceSettings
from core import formats
from core.errors import UnavailableError
from core.knowledge import Document, DocumentStatus
from core.operations.sync import SyncReport
from services.adapters.edge.client import open_edge_client
from services.adapters.readers.documents import parse_document
from services.knowledge.base import KnowledgeBase
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.parsing.pieces import Pieces
from services.knowledge.parsing.process import DocumentParser, ParserProcess
from services.models.embedding import EmbeddingService
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from services.sync.folders import FolderSync
from tests.services.sync.parts import QUICK as QUICK_PACE
from tests.services.sync.parts import SOURCE, reports_store
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.stores.knowledge import QUICK, BrokenEmbedding, parse_here

NAMES = StoreSettings()
GOOD = "# Title\n\nThe word is {}."


class Counted:
    """Counts how often files are parsed, and texts embedded."""

    def __init__(self, parse: DocumentParser) -> None:
        self._parse = parse
        self.parsed: list[str] = []
        self.embedding = BrokenEmbedding()

    async def parse(self, file_name: str, content: bytes, owner: str = "") -> Pieces:
        self.parsed.append(file_name)
        return await self._parse(file_name, content, owner)


@dataclass
class Bench:
    folder: Path
    data_dir: Path
    store: VectorStore
    knowledge: KnowledgeBase
    counted: Counted

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(text.encode())

    def sync(self, **source: Any) -> FolderSync:
        return FolderSync(
            self.knowledge, {SOURCE: SourceSettings(folder=self.folder, **source)}, self.store,
            StoreSettings(data_dir=self.data_dir), max_file_bytes=1_000_000,
            pace=QUICK_PACE,
        )  # fmt: skip

    async def run(self, **source: Any) -> SyncReport:
        (report,) = await self.sync(**source).run()
        return report

    async def documents(self) -> dict[str, Document]:
        return {each.external_id or "": each async for each in self.knowledge.of_source(SOURCE)}

    async def hits(self, phrase: str) -> int:
        """The number of searchable chunks with the phrase."""
        ready = models.FieldCondition(key="ready", match=models.MatchValue(value=True))
        records, _ = await self.store.scroll(
            NAMES.knowledge_collection, models.Filter(must=[ready]), limit=10_000
        )
        return sum(phrase in str((record.payload or {})["text"]) for record in records)


@asynccontextmanager
async def bench_over(store: VectorStore, tmp_path: Path, parse: DocumentParser) -> AsyncIterator[Bench]:
    folder = tmp_path / "folder"
    folder.mkdir()
    names = StoreSettings(data_dir=tmp_path / "data")
    counted = Counted(parse)
    embedding = EmbeddingService(counted.embedding, "hashing", DIMENSION)
    async with KnowledgeBase(store, embedding, counted.parse, names, retries=QUICK) as knowledge:
        yield Bench(folder, names.data_dir, store, knowledge, counted)
    await embedding.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with reports_store() as store:
        await store.create_collection(
            NAMES.knowledge_collection,
            vectors_config={"dense": models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)},
            sparse_vectors_config={"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        async with bench_over(store, tmp_path, parse_here) as opened:
            yield opened


async def test_files_become_documents_of_the_source_and_a_second_run_parses_none(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    bench.write("in/b.md", GOOD.format("pear"))
    bench.write("broken.json", "{")
    bench.write("empty.md", "")
    first = await bench.run(tags=("fruit",))
    assert (first.added, first.failed) == (2, 2)
    documents = await bench.documents()
    assert set(documents) == {"docs/a.md", "docs/in/b.md", "docs/broken.json", "docs/empty.md"}
    pear = documents["docs/in/b.md"]
    assert (pear.file_name, pear.source, pear.tags, pear.owner) == ("b.md", SOURCE, ("fruit",), "shared")
    assert documents["docs/broken.json"].status is DocumentStatus.FAILED
    bench.counted.parsed.clear()
    second = await bench.run(tags=("fruit",))
    assert (second.unchanged, second.failed, second.failures) == (2, 2, first.failures)
    assert bench.counted.parsed == []
    assert await bench.documents() == documents


async def test_changed_broken_fixed_and_removed_files_are_synced(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    bench.write("b.md", GOOD.format("pear"))
    await bench.run()
    bench.write("a.md", GOOD.format("quince, now"))
    (bench.folder / "b.md").unlink()
    report = await bench.run()
    assert (report.changed, report.removed, report.unchanged) == (1, 1, 0)
    assert [await bench.hits(word) for word in ("apple", "quince", "pear")] == [0, 1, 0]
    bench.write("a.md", "")
    report = await bench.run()
    assert (report.failed, report.changed) == (1, 0)
    assert await bench.hits("quince") == 1
    bench.counted.parsed.clear()
    assert (await bench.run()).failures == report.failures
    assert bench.counted.parsed == []
    bench.write("a.md", GOOD.format("mango"))
    assert (await bench.run()).is_fine
    assert [await bench.hits(word) for word in ("quince", "mango")] == [0, 1]


async def test_a_reverted_bad_version_leaves_no_trace_of_a_failure(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    await bench.run()
    bench.write("a.md", "")
    await bench.run()
    bench.write("a.md", GOOD.format("apple"))
    assert (await bench.run()).is_fine
    assert (await bench.run()).unchanged == 1
    (document,) = (await bench.documents()).values()
    assert (document.status, document.error, document.refused_hash) == (DocumentStatus.READY, None, "")


async def test_after_an_upgrade_files_are_read_again_once_and_what_is_refused_then_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: files that stay as an earlier release read them, or that every run reads again."""
    bench.write("a.md", GOOD.format("apple"))
    bench.write("b.json", '"pear"')
    bench.write("empty.md", "")
    await bench.run()
    monkeypatch.setitem(formats._READERS, formats.DocumentFormat.MARKDOWN, 2)
    bench.counted.parsed.clear()
    assert (await bench.run()).changed == 1
    assert sorted(bench.counted.parsed) == ["a.md"]  # an empty file is refused before that
    assert await bench.hits("apple") == 1
    bench.write("a.md", "")
    refused = await bench.run()
    assert (refused.failed, await bench.hits("apple")) == (2, 1)
    monkeypatch.setitem(formats._READERS, formats.DocumentFormat.MARKDOWN, 3)
    assert (await bench.run()).failures == (await bench.run()).failures == refused.failures
    documents = await bench.documents()
    assert documents["docs/a.md"].refused_hash.endswith(".6")
    bench.counted.parsed.clear()
    bench.write("a.md", GOOD.format("apple"))
    assert (await bench.run()).changed == 1
    assert bench.counted.parsed == ["a.md"]
    assert (await bench.run()).unchanged == 2


async def test_new_tags_and_another_owner_reach_the_documents_without_parsing(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    await bench.run()
    bench.counted.parsed.clear()
    assert (await bench.run(tags=("x",), owner="ann")).changed == 1
    (document,) = (await bench.documents()).values()
    assert (document.owner, document.tags, bench.counted.parsed) == ("ann", ("x",), [])
    assert (await bench.run(tags=("x",), owner="ann")).unchanged == 1


async def test_a_file_that_could_not_be_embedded_is_retried_even_if_unchanged(bench: Bench) -> None:
    """Discriminates: taking a temporary failure for a refusal of this content."""
    for number in range(4):
        bench.write(f"{number}.md", GOOD.format(f"apple {number}"))
    bench.write("p.md", GOOD.format("poison, in a file that comes last"))
    await bench.run()
    for name in ("p.md", "0.md"):  # once without, and once with an older version
        bench.counted.embedding.word = "poison"
        bench.write(name, GOOD.format(f"poison, as {name} has it"))
        report = await bench.run()
        assert report.failed + report.not_reached > 0
        bench.counted.embedding.word = "nothing has this"
        again = await bench.run()
        assert again.is_fine
        assert await bench.hits(f"poison, as {name}") == 1
        assert (await bench.run()).unchanged == 5


async def test_a_store_unreachable_at_first_is_not_a_failure_of_any_file(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    tries = iter((True, True, False))
    add = bench.knowledge.add

    async def away(upload: Any) -> Any:
        if next(tries, False):
            raise UnavailableError("away")
        return await add(upload)

    bench.knowledge.add = away  # type: ignore[method-assign]
    assert (await bench.run()).added == 1


async def test_forgetting_a_source_leaves_no_chunk(bench: Bench) -> None:
    bench.write("a.md", GOOD.format("apple"))
    await bench.run()
    other = FolderSync(
        bench.knowledge, {}, bench.store, StoreSettings(data_dir=bench.data_dir),
        max_file_bytes=1,
    )  # fmt: skip
    (left,) = (await other.state()).left
    assert "no longer configured: 1 document left; wenmai sync --forget docs" in left.message
    assert await other.forget("docs") == 1
    assert (await other.state()).left == ()
    assert await bench.hits("apple") == 0


async def longest_lag_s(running: Callable[[], bool]) -> float:
    longest = 0.0
    while running():
        began = time.perf_counter()
        await asyncio.sleep(0.005)  # a beat of the loop, whose lateness is measured
        longest = max(longest, time.perf_counter() - began - 0.005)
    return longest


@pytest.mark.alone
@pytest.mark.usefixtures("started_children")
async def test_the_event_loop_stays_responsive_during_a_sync(tmp_path: Path) -> None:
    """With the embedded engine and parsers in children, as in a server (RELIABILITY: lag)."""
    async with open_edge_client(tmp_path / "data" / "store") as store:
        await ensure_collections(store, NAMES, embedding_name="hashing", dimension=DIMENSION)
        parse = ParserProcess(parse_document, StructureSplitter(chunk_tokens=64))
        async with bench_over(store, tmp_path, parse) as bench:
            for number in range(40):
                bench.write(f"{number % 7}/{number}.md", GOOD.format(f"w{number}") + "\n\nmore " * 150)
            running = asyncio.create_task(bench.run())
            lag_s = await longest_lag_s(lambda: not running.done())
            assert (await running).added == 40
            assert lag_s < 0.15
            running = asyncio.create_task(bench.run())
            assert await longest_lag_s(lambda: not running.done()) < 0.15
            assert (await running).unchanged == 40
