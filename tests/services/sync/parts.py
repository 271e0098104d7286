"""A folder, a knowledge base and the sync between them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from qdrant_client import AsyncQdrantClient

from config.settings import StoreSettings
from config.tables import SourceSettings
from core.operations.sync import SyncReport
from services.store.dialect import VectorStore
from services.sync.folders import FolderSync
from services.sync.intake import SyncPace
from tests.services.sync.fake_knowledge import FakeKnowledge

QUICK = SyncPace(pauses_s=(0, 0, 0), settle_s=0)
MOST_BYTES = 1_000
SOURCE = "docs"


@asynccontextmanager
async def reports_store() -> AsyncIterator[VectorStore]:
    """The reference engine in memory, with the two collections that the sync itself uses."""
    store = cast(VectorStore, AsyncQdrantClient(":memory:"))
    names = StoreSettings()
    await store.create_collection(names.operations_collection, vectors_config={})
    await store.create_collection(names.document_collection, vectors_config={})
    yield store
    await store.close()


@dataclass
class Bench:
    folder: Path
    data_dir: Path
    store: VectorStore
    knowledge: FakeKnowledge

    def sync(self, pace: SyncPace = QUICK, name: str = SOURCE, **source: Any) -> FolderSync:
        """As a server that starts has it."""
        settings = SourceSettings(folder=self.folder, **source)
        return FolderSync(
            self.knowledge, {name: settings}, self.store, StoreSettings(data_dir=self.data_dir),
            max_file_bytes=MOST_BYTES, pace=pace,
        )  # fmt: skip

    async def run(self, allow_removals: bool = False, **source: Any) -> SyncReport:
        (report,) = await self.sync(**source).run(allow_removals=allow_removals)
        return report

    def write(self, path: str, content: str | bytes = "text") -> Path:
        """A file's time differs with every write, as between two moments of a person's day."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        global _moment
        _moment += 1_000_000
        os.utime(file, ns=(_moment, _moment))
        return file


_moment = 1_700_000_000_000_000_000


@asynccontextmanager
async def open_bench(tmp_path: Path) -> AsyncIterator[Bench]:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with reports_store() as store:
        yield Bench(folder, tmp_path / "data", store, FakeKnowledge())
