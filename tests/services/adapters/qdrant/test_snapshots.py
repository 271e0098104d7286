"""A server's snapshots are fetched, kept in one archive, and put back (against a stub of its API)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from config.settings import StoreSettings
from core.errors import StartRefusedError, StoreUnavailableError
from core.operations.archive import Kind, Role
from services.adapters.qdrant.snapshots import open_snapshots
from services.operations.backup.filling import Embedding, Restore, Target, check_restorable
from services.operations.backup.making import Backups
from services.operations.backup.reader import open_archive
from services.store.dialect import StoreRequestError, UnsupportedByStoreError, VectorStore
from tests.services.adapters.edge.stores import NO_INDEX_WARNING, open_store
from tests.services.adapters.qdrant.snapshot_stub import KEY, SnapshotServer, open_snapshot_server
from tests.services.operations.backup.stores import EMBEDDING, fill, make

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
    """The stub's collections are opaque; the store beside it is asked for counts and shapes."""
    settings = settings_of(server)
    await make(store, settings)
    await fill(store, settings)
    server.collections = {role.value: os.urandom(700_000) for role in Role}
    return settings


async def test_one_archive_has_every_snapshot_and_none_stays_on_the_server(
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
            check_restorable(archive.manifest, Embedding(EMBEDDING, 4), into_server=True)
            with pytest.raises(StartRefusedError, match="only a server can read"):
                check_restorable(archive.manifest, None, into_server=False)
            async with open_store("memory", tmp_path) as target:
                await Restore(archive, snapshots).into(Target(target, settings), lambda _: None)
    assert server.collections == before
    assert server.uploaded[-1] == "operations"


async def test_a_download_that_breaks_leaves_no_archive_and_no_snapshot(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    settings = await filled(store, server)
    server.breaks_after = 100_000
    async with open_snapshots(settings) as snapshots:
        with pytest.raises(StoreUnavailableError):
            await Backups(store, settings, snapshots).create(tmp_path / "backups", "command")
    assert os.listdir(tmp_path / "backups") == []
    assert server.snapshots == {}


async def test_a_node_that_has_only_a_part_is_refused(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    settings = await filled(store, server)
    server.away = [0, 1]
    async with open_snapshots(settings) as snapshots:
        with pytest.raises(StoreRequestError, match="1 shards on other nodes"):
            await Backups(store, settings, snapshots).create(tmp_path, "command")
    assert server.snapshots == {}


async def test_a_wrong_key_and_an_unknown_collection_are_told_without_the_key(
    server: SnapshotServer,
) -> None:
    async with open_snapshots(settings_of(server, qdrant_api_key="another-key")) as snapshots:
        with pytest.raises(StoreUnavailableError, match="401") as raised:
            await snapshots.create("conversations")
    assert "another-key" not in str(raised.value)
    async with open_snapshots(settings_of(server)) as snapshots:
        with pytest.raises(StoreRequestError, match="404"):
            await snapshots.create("conversations")


async def test_a_server_that_is_away_is_told(server: SnapshotServer) -> None:
    async with open_snapshots(settings_of(server, qdrant_url="http://127.0.0.1:1")) as snapshots:
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            await snapshots.delete("conversations", "x")


async def test_a_store_that_can_do_neither_is_told(
    server: SnapshotServer, store: VectorStore, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedByStoreError):
        await Backups(store, settings_of(server)).create(tmp_path, "command")
