"""An archive is restored into an empty store only, unchanged, completely or not at all (RELIABILITY B113,
F36)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from qdrant_client import models

from api.offline.stores import open_source, open_target
from api.wiring.parts import folders_of
from core.errors import StartRefusedError, StoreLockedError
from core.operations.reports import Receipt, ReceiptKind
from services.operations.backup.filling import (
    MARKER_ID,
    FillReport,
    Restore,
    RestoreIncompleteError,
    StoreNotEmptyError,
    Target,
    check_restorable,
    embedding_of,
    refuse_half_filled,
)
from services.operations.backup.reader import open_archive
from services.store.collections import SCHEMA_VERSION, StoredAs, collection_specs, ensure_collections
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store
from tests.services.operations.backup.stores import (
    EMBEDDING,
    Contents,
    a_point,
    back_up,
    contents,
    fill,
    make,
    nth,
    open_embedded,
    settings_of,
    write_turns,
)
from tests.services.operations.reembedding.test_run import ForgetfulClient

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)


@pytest.fixture
async def backup(tmp_path: Path) -> tuple[Path, Contents]:
    """An archive and the contents of its store."""
    folder = tmp_path / "from"
    async with open_embedded(folder) as store:
        await fill(store, settings_of(folder))
        await write_turns(store, range(100, 400))
        restored = await contents(store, settings_of(folder))
        archive, _ = await back_up(store, folder)
    return archive, restored


async def restore(archive: Path, target: Target) -> FillReport:
    with open_archive(archive) as opened:
        opened.verify()
        return await Restore(opened).into(target, lambda _: None)


@asynccontextmanager
async def restored(archive: Path, folder: Path) -> AsyncIterator[VectorStore]:
    async with open_target(settings_of(folder)) as target:
        await restore(archive, target)
    async with open_source(settings_of(folder)) as store:
        yield store


@pytest.mark.parametrize("engine", [each for each in ENGINES if each != "edge"])
async def test_an_embedded_stores_archive_is_the_same_on_a_server(
    backup: tuple[Path, Contents], engine: str, tmp_path: Path
) -> None:
    archive, results = backup
    settings = settings_of(tmp_path)
    async with open_store(engine, tmp_path) as store:
        for spec in collection_specs(settings):
            await store.delete_collection(spec.name)
        report = await restore(archive, Target(store, settings))
        assert sum(report.points.values()) == sum(map(len, results.values()))
        await refuse_half_filled(store, settings.operations_collection)
        same_points(await contents(store, settings), results)


def same_points(read: Contents, restored: Contents) -> None:
    assert {name: set(points) for name, points in read.items()} == {
        name: set(points) for name, points in restored.items()
    }
    for name, points in restored.items():
        for point_id, (payload, vectors) in points.items():
            assert read[name][point_id][0] == payload
            for vector, values in (vectors or {}).items():
                stored = read[name][point_id][1][vector]
                if isinstance(values, models.SparseVector):
                    assert stored == values
                else:
                    assert stored == pytest.approx(values, abs=1e-6)


async def test_a_store_is_restored_with_every_payload_and_vector_and_serves(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    archive, results = backup
    folder = tmp_path / "to"
    async with restored(archive, folder) as store:
        same_points(await contents(store, settings_of(folder)), results)
        await ensure_collections(store, settings_of(folder), embedding_name=EMBEDDING, dimension=4)
        info = await store.get_collection("conversations")
        assert {"session_id", "owner", "created_us"} <= set(info.payload_schema)
        (receipt,) = await ReceiptStore(store, "operations").newest(kind=ReceiptKind.RESTORE)
        assert receipt.counts["conversations"] == 305
        assert not await store.retrieve("operations", [MARKER_ID])
    assert [path.name for path in folder.iterdir()] == ["store"]


async def test_a_non_empty_store_is_refused_and_left_unchanged(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    archive, _ = backup
    folder = tmp_path / "to"
    async with open_embedded(folder) as store:
        await store.upsert("sessions", [a_point(1, ())])
    with pytest.raises(StoreNotEmptyError, match="1 in sessions"):
        async with restored(archive, folder):
            pass
    async with open_embedded(folder) as store:
        assert (await store.count("sessions")).count == 1
        assert (await store.count("conversations")).count == 0
    assert [path.name for path in folder.iterdir()] == ["store"]


async def test_a_store_opened_by_a_server_is_refused(backup: tuple[Path, Contents], tmp_path: Path) -> None:
    async with open_embedded(tmp_path / "to"):
        with pytest.raises(StoreLockedError):
            async with restored(backup[0], tmp_path / "to"):
                pass


@pytest.mark.full("writes a whole store anew")
async def test_an_empty_stores_old_configuration_does_not_matter_and_its_receipts_stay(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    """Discriminates: not taking over earlier receipts; keeping the old collections."""
    folder = tmp_path / "to"
    async with open_embedded(folder, "another") as store:
        receipt = await ReceiptStore(store, "operations").add(
            Receipt("", ReceiptKind.ERASURE, "request", 5, 6)
        )
        await store.upsert("operations", [a_point(77, (), record="lease")])
    async with restored(backup[0], folder) as store:
        await ensure_collections(store, settings_of(folder), embedding_name=EMBEDDING, dimension=4)
        assert receipt in await ReceiptStore(store, "operations").newest()
        assert not await store.retrieve("operations", [nth(77)])


async def test_a_restore_that_fails_leaves_nothing(backup: tuple[Path, Contents], tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "to")

    async def fail() -> None:
        async with open_target(settings) as target:
            await restore(backup[0], target)
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await fail()
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.full("writes a whole store anew")
async def test_a_killed_restore_is_reported_at_the_start_and_started_over(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    folder = tmp_path / "to"
    folders = folders_of(settings_of(folder))
    folders.unfinished.mkdir(parents=True)
    (folders.unfinished / "half").touch()
    with pytest.raises(StartRefusedError, match="was interrupted"):
        folders.refuse_interrupted()
    async with restored(backup[0], folder) as store:
        assert (await store.count("conversations")).count == 305
    folders.refuse_interrupted()


@pytest.mark.full("works through many cases, for seconds")
@pytest.mark.parametrize("emptied", [False, True])
async def test_a_restore_killed_between_its_renames_is_finished(
    backup: tuple[Path, Contents], tmp_path: Path, emptied: bool
) -> None:
    folder = tmp_path / "to"
    folders = folders_of(settings_of(folder))
    async with restored(backup[0], folder):
        pass
    folders.store.rename(folders.whole)
    if not emptied:
        async with open_embedded(folder):
            pass
    with pytest.raises(StartRefusedError, match="was interrupted"):
        folders.refuse_interrupted()
    assert folders.finish_interrupted()
    async with open_source(settings_of(folder)) as store:
        assert (await store.count("conversations")).count == 305
    assert not folders.finish_interrupted()


async def test_a_half_filled_server_is_refused_and_the_same_restore_finishes_it(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    settings = settings_of(tmp_path)
    async with open_store("memory", tmp_path) as store:
        await make(store, settings)
        with open_archive(backup[0]) as archive:
            unfinished = Target(store, settings)
            operations = archive.manifest.members[-1].shape
            await unfinished.begin(Restore(archive).what, operations)
            await store.upsert("conversations", [a_point(100, ("turn", "question"))])
        with pytest.raises(StartRefusedError, match="a restore of"):
            await refuse_half_filled(store, settings.operations_collection)
        with pytest.raises(StartRefusedError, match="not finished"):
            await Target(store, settings).begin("a move", operations)
        await restore(backup[0], Target(store, settings))
        await refuse_half_filled(store, settings.operations_collection)
        assert (await store.count("conversations")).count == 305


async def test_missing_points_are_noticed(backup: tuple[Path, Contents], tmp_path: Path) -> None:
    """Discriminates: not comparing counts."""
    store = ForgetfulClient(":memory:")
    with pytest.raises(RestoreIncompleteError):
        await restore(backup[0], Target(store, settings_of(tmp_path)))  # type: ignore[arg-type]
    await store.close()


async def test_another_embedding_is_refused_naming_both_and_the_solution(
    backup: tuple[Path, Contents], tmp_path: Path
) -> None:
    with open_archive(backup[0]) as archive:
        manifest = archive.manifest
    assert embedding_of(manifest) == _stored(EMBEDDING, 4)
    check_restorable(manifest, _stored(EMBEDDING, 4), into_server=False)
    check_restorable(manifest, None, into_server=False)
    with pytest.raises(StartRefusedError) as raised:
        check_restorable(manifest, _stored("big", 8), into_server=False)
    for part in ("small (4 dim", "big (8 dim", "--as-is", "wenmai reembed"):
        assert part in str(raised.value)


def _stored(embedding: str, dimension: int) -> StoredAs:
    return StoredAs(embedding=embedding, dimension=dimension, schema_version=SCHEMA_VERSION)
