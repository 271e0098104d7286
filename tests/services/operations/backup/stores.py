"""Stores to back up, and their contents, for the tests of backup, restore and moving."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from qdrant_client import models

from config.settings import StoreSettings
from services.adapters.edge.client import open_edge_client
from services.operations.backup.making import BackupReport, Backups
from services.operations.backup.records import stored_names
from services.store.collections import SPARSE, collection_specs, ensure_collections
from services.store.dialect import VectorStore

DIMENSION = 4
EMBEDDING = "small"
Hook = Callable[[], Awaitable[None]]
Contents = dict[str, dict[str, tuple[Any, Any]]]
"""By collection and id: payload and vectors."""


def settings_of(folder: Path, **fields: Any) -> StoreSettings:
    return StoreSettings(data_dir=folder, low_disk_mb=64, **fields)


@asynccontextmanager
async def open_embedded(folder: Path, embedding: str = EMBEDDING) -> AsyncIterator[VectorStore]:
    async with open_edge_client(folder / "store") as store:
        await make(store, settings_of(folder), embedding)
        yield store


async def make(store: VectorStore, settings: StoreSettings, embedding: str = EMBEDDING) -> None:
    await ensure_collections(store, settings, embedding_name=embedding, dimension=DIMENSION)


def nth(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def a_point(number: int, dense: tuple[str, ...], **payload: Any) -> models.PointStruct:
    """Its vectors and its text are derived from its number."""
    choice = random.Random(number)
    vector: dict[str, Any] = {name: [choice.uniform(-1, 1) for _ in range(DIMENSION)] for name in dense}
    indices = sorted(choice.sample(range(1 << 32), 5))
    vector[SPARSE] = models.SparseVector(indices=indices, values=[choice.random() for _ in indices])
    return models.PointStruct(id=nth(number), vector=vector, payload={"text": f"第 {number} 条", **payload})


async def write_turns(store: VectorStore, numbers: range, **payload: Any) -> None:
    points = [a_point(number, ("turn", "question"), **payload) for number in numbers]
    await store.upsert("conversations", points)


async def fill(store: VectorStore, settings: StoreSettings, number: int = 5) -> None:
    """Points in every collection, and a session without vectors."""
    for spec in collection_specs(settings):
        await store.upsert(
            spec.name, [a_point(n, spec.dense, nested={"of": [spec.name]}) for n in range(number)]
        )
    bare = models.PointStruct(id=nth(10**6), vector={}, payload={"record": "session"})
    await store.upsert(settings.session_collection, [bare])


async def contents(store: VectorStore, settings: StoreSettings) -> Contents:
    """Without receipts, of which a copy of the store may have more."""
    restored: Contents = {}
    for name in (await stored_names(store, settings)).values():
        records, _ = await store.scroll(name, limit=10_000, with_vectors=True)
        restored[name] = {
            str(record.id): (record.payload, record.vector)
            for record in records
            if (record.payload or {}).get("record") != "receipt"
        }
    return restored


async def back_up(store: VectorStore, folder: Path, **more: Any) -> tuple[Path, BackupReport]:
    report = await Backups(store, settings_of(folder)).create(folder / "backups", "command", **more)
    return folder / "backups" / report.file, report


class Interrupted:
    """The store itself; `hook` is called once, after this many page reads of the conversations."""

    def __init__(self, store: VectorStore, hook: Hook, after_pages: int) -> None:
        self._store = store
        self._hook = hook
        self._left = after_pages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, collection_name: str, **expected: Any) -> tuple[list[models.Record], Any]:
        page = await self._store.scroll(collection_name, **expected)
        if collection_name == "conversations":
            self._left -= 1
            if self._left == 0:
                await self._hook()
        return page


def interrupted(store: VectorStore, hook: Hook, after_pages: int = 3) -> VectorStore:
    return cast(VectorStore, Interrupted(store, hook, after_pages))
