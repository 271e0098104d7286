"""A server's faults become our errors, and a server that is down does not prevent the client from opening."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient, models

from config.settings import StoreSettings
from core.errors import StartRefusedError, StoreUnavailableError
from core.operations.archive import Kind, Role
from services.adapters.qdrant import TranslatedClient, open_qdrant_server, open_snapshots
from services.operations.backup.filling import Restore, Target, check_restorable
from services.operations.backup.making import Backups
from services.operations.backup.reader import open_archive
from services.store.collections import SCHEMA_VERSION, StoredAs
from services.store.dialect import StoreRequestError, UnknownPointError, UnsupportedByStoreError, VectorStore
from tests.services.adapters.edge.stores import NO_INDEX_WARNING, open_store
from tests.services.adapters.snapshot_stub import KEY, SnapshotServer, open_snapshot_server
from tests.services.operations.backup.stores import EMBEDDING, fill, make


@asynccontextmanager
async def server_that_answers(status: int, message: str) -> AsyncIterator[str]:
    """A real HTTP server that gives the same answer to everything; status 0 hangs up instead."""
    body = json.dumps({"status": {"error": message}, "time": 0.0}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if status:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (0, "", StoreUnavailableError),
        (503, "Service Unavailable", StoreUnavailableError),
        (401, "Must provide an API key", StoreUnavailableError),
        (400, "Wrong input: Vector dimension error", StoreRequestError),
        (404, "Not found: Collection `x` doesn't exist!", StoreRequestError),
        (404, "Not found: No point with id 7 found", UnknownPointError),
    ],
)
async def test_a_servers_refusal_becomes_ours(status: int, message: str, expected: type[Exception]) -> None:
    async with (
        server_that_answers(status, message) as url,
        open_qdrant_server(StoreSettings(qdrant_url=url)) as store,
    ):
        with pytest.raises(expected) as failed:
            await store.set_payload("x", {"a": 1}, [7])
    assert type(failed.value) is expected


async def test_a_server_that_is_down_is_unavailable_on_request_and_not_before() -> None:
    async with open_qdrant_server(StoreSettings(qdrant_url="http://127.0.0.1:9")) as store:
        with pytest.raises(StoreUnavailableError):
            await store.collection_exists("x")


SPARSE = models.SparseVector(indices=[1, 2], values=[1.0, 2.0])


@pytest.mark.parametrize(
    "bad",
    [
        {"dense": [1.0]}, {"dense": [1.0, float("nan")]}, {"other": [1.0, 2.0]}, {"dense": SPARSE},
        {"words": [1.0, 2.0]},
    ],
)  # fmt: skip
async def test_nothing_of_a_batch_with_an_invalid_point_is_written(bad: dict[str, Any]) -> None:
    """Discriminates: writing the points before it, as a server does."""
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(
        "x",
        {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)},
        {"words": models.SparseVectorParams()},
    )
    store = TranslatedClient(client)
    good = models.PointStruct(id=1, vector={"dense": [1.0, 2.0], "words": SPARSE})
    with pytest.raises(StoreRequestError):
        await store.upsert("x", [good, models.PointStruct(id=2, vector=bad)])
    assert (await store.count("x")).count == 0
    await store.upsert("x", [good])
    with pytest.raises(StoreRequestError):
        await store.update_vectors("x", [models.PointVectors(id=1, vector=bad)])
    assert (await store.count("x")).count == 1
    await client.close()


pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)


@pytest.fixture
async def server() -> AsyncIterator[SnapshotServer]:
    async with open_snapshot_server() as opened:
        yield opened


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store("memory", tmp_path) as opened:
        yield opened


def settings_of(server: SnapshotServer, **fields: Any) -> StoreSettings:
    fields = {"qdrant_url": server.url, "qdrant_api_key": SecretStr(KEY), "low_disk_mb": 64, **fields}
    return StoreSettings.model_validate(fields)


async def filled(store: VectorStore, server: SnapshotServer) -> StoreSettings:
    """The stub's collections are opaque; the store next to it is queried for counts and shapes."""
    settings = settings_of(server)
    await make(store, settings)
    await fill(store, settings)
    server.collections = {role.value: os.urandom(700_000) for role in Role if role is not Role.IMAGES}
    return settings


async def test_an_archive_has_every_snapshot_and_none_stays_on_the_server(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    settings = await filled(store, server)
    before = dict(server.collections)
    async with open_snapshots(settings) as snapshots:
        report = await Backups(store, settings, snapshots).create(tmp_path, "command")
        assert server.snapshots == {}
        assert report.points["sessions"] == 6
        server.collections.clear()
        with open_archive(tmp_path / report.file) as archive:
            archive.verify()
            assert {member.kind for member in archive.manifest.members} == {Kind.SNAPSHOT}
            check_restorable(
                archive.manifest,
                StoredAs(embedding=EMBEDDING, dimension=4, schema_version=SCHEMA_VERSION),
                into_server=True,
            )
            with pytest.raises(StartRefusedError, match="only a server can read"):
                check_restorable(archive.manifest, None, into_server=False)
            async with open_store("memory", tmp_path) as target:
                await Restore(archive, snapshots).into(Target(target, settings), lambda _: None)
    assert server.collections == before
    assert server.uploaded[-1] == "operations"


async def test_an_interrupted_download_leaves_no_archive_and_no_snapshot(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    settings = await filled(store, server)
    server.breaks_after = 100_000
    async with open_snapshots(settings) as snapshots:
        with pytest.raises(StoreUnavailableError):
            await Backups(store, settings, snapshots).create(tmp_path / "backups", "command")
    assert os.listdir(tmp_path / "backups") == []
    assert server.snapshots == {}


async def test_a_node_with_only_some_of_the_shards_is_refused(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    settings = await filled(store, server)
    server.away = [0, 1]
    async with open_snapshots(settings) as snapshots:
        with pytest.raises(StoreRequestError, match="1 shards on other nodes"):
            await Backups(store, settings, snapshots).create(tmp_path, "command")
    assert server.snapshots == {}


async def test_a_wrong_key_and_an_unknown_collection_are_reported_without_the_key(
    server: SnapshotServer,
) -> None:
    async with open_snapshots(settings_of(server, qdrant_api_key="another-key")) as snapshots:
        with pytest.raises(StoreUnavailableError, match="401") as raised:
            await snapshots.create("conversations")
    assert "another-key" not in str(raised.value)
    async with open_snapshots(settings_of(server)) as snapshots:
        with pytest.raises(StoreRequestError, match="404"):
            await snapshots.create("conversations")


async def test_an_unreachable_server_is_reported(server: SnapshotServer) -> None:
    async with open_snapshots(settings_of(server, qdrant_url="http://127.0.0.1:1")) as snapshots:
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            await snapshots.delete("conversations", "x")


async def test_a_store_without_snapshots_or_following_is_reported(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedByStoreError):
        await Backups(store, settings_of(server)).create(tmp_path, "command")
