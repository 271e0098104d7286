"""A start finds a prepared copy and uses it; copies next to the store are chosen, never mixed up."""

from __future__ import annotations

from pathlib import Path

import pytest
from qdrant_client import models

from config.settings import ModelSettings, StoreSettings
from core.errors import DiskFullError, StartRefusedError, StoreLockedError
from services.adapters.edge import collection as edge_collection
from services.adapters.edge.client import open_edge_client
from services.models.embedding import EmbeddingService
from services.operations.reembedding import folders as reembed_folders
from services.operations.reembedding.beside import CopyBeside, stored_as_of, switch_if_prepared
from services.operations.reembedding.folders import StoreFolders, _spec
from services.store.collections import StoredAs, ensure_collections, read_stored_as
from tests.services.adapters.edge.stores import nth_id
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.models.wider_embedding import WIDER, WIDER_DIMENSION
from tests.support.servers.app import HASHING
from tests.support.stores.copies import copied
from tests.support.stores.reembedding import open_beside, opened_embedding, switch

NAMES = StoreSettings()
NAME = {HASHING: HASHING.partition(":")[2], WIDER: WIDER.partition(":")[2]}


def stored_as(folder: Path) -> StoredAs | None:
    """How the files of the conversations describe their vectors."""
    spec = _spec(folder / "conversations")
    return read_stored_as(spec.metadata) if spec else None


async def write(data: Path, number: int, embedding: str = HASHING) -> None:
    """A turn in the store, which is created with this embedding if it does not exist."""
    dimension = DIMENSION if embedding == HASHING else WIDER_DIMENSION
    async with open_edge_client(data / "store") as store:
        await ensure_collections(store, NAMES, embedding_name=NAME[embedding], dimension=dimension)
        payload = {"user_query": f"q{number}", "assistant_response": "a", "created_us": number}
        point = models.PointStruct(id=nth_id(number), vector={}, payload=payload)
        await store.upsert("conversations", [point])


async def turns(data: Path) -> set[str]:
    async with open_edge_client(data / "store") as store:
        return {str(record.id) for record in (await store.scroll("conversations", limit=100))[0]}


async def prepare(data: Path, embedding: EmbeddingService) -> None:
    folders = StoreFolders(data / "store")
    copy = CopyBeside(folders, NAMES, embedding, lambda: open_beside(data, folders.copy.name))
    async with open_edge_client(data / "store") as source:
        await copy.make(source, lambda _: None, reason="command")


@pytest.mark.full("writes a whole store anew")
async def test_a_start_uses_the_prepared_copy_and_can_go_back_to_the_replaced_store(
    tmp_path: Path,
) -> None:
    await write(tmp_path, 1)
    assert await switch(tmp_path, WIDER) is None
    async with opened_embedding(ModelSettings(embedding=WIDER)) as wider:
        await prepare(tmp_path, wider)
    await write(tmp_path, 2)
    old = await switch(tmp_path, WIDER)
    assert old is not None
    assert await turns(tmp_path) == {nth_id(1), nth_id(2)}
    assert await switch(tmp_path, WIDER) is None
    await write(tmp_path, 3, WIDER)
    assert await switch(tmp_path, HASHING) is not None
    assert await turns(tmp_path) == {nth_id(1), nth_id(2), nth_id(3)}
    assert stored_as(tmp_path / "store") == StoredAs(
        embedding=NAME[HASHING], dimension=DIMENSION, schema_version=1
    )
    assert not (tmp_path / "store.reembed").exists()


@pytest.mark.full("writes a whole store anew")
async def test_a_matching_store_is_not_opened_to_check_it(tmp_path: Path) -> None:
    """Discriminates: a second store process at every start."""
    await write(tmp_path, 1)
    opened: list[str] = []

    def refuse(name: str) -> None:
        opened.append(name)

    async with opened_embedding(ModelSettings(embedding=HASHING)) as embedding:
        await switch_if_prepared(tmp_path / "store", NAMES, embedding, refuse)  # type: ignore[arg-type]
        await switch_if_prepared(tmp_path / "none", NAMES, embedding, refuse)  # type: ignore[arg-type]
    assert opened == []


@pytest.mark.full("writes a whole store anew")
async def test_going_back_does_not_lose_a_copy_for_a_third_model(tmp_path: Path) -> None:
    await write(tmp_path, 1)
    await switch(tmp_path, HASHING)
    async with opened_embedding(ModelSettings(embedding=WIDER)) as wider:
        await prepare(tmp_path, wider)
    folders = StoreFolders(tmp_path / "store")
    copied(folders.store, tmp_path / "store.before-20260101T000000000Z")
    folders.take_over(tmp_path / "store.before-20260101T000000000Z")
    (folder,) = folders.replaced()
    in_store = stored_as(folder)
    assert in_store is not None
    assert in_store.embedding == NAME[WIDER]
    assert folders.prepared(NAMES, in_store) == folder


@pytest.mark.full("writes a whole store anew")
async def test_a_start_with_an_unfinished_copy_says_what_to_wait_for(tmp_path: Path) -> None:
    """Discriminates: continuing to the refusal that says to embed everything again."""
    await write(tmp_path, 1)
    async with opened_embedding(ModelSettings(embedding=WIDER)) as wider:
        await prepare(tmp_path, wider)
        folders = StoreFolders(tmp_path / "store")
        (folders.copy / "prepared").unlink()
        with pytest.raises(StartRefusedError, match=r"not finished.*EMBEDDING.*GET /admin/reembed.*prepared"):
            await switch(tmp_path, WIDER)
        assert await switch(tmp_path, HASHING) is None
        await prepare(tmp_path, wider)
    assert await switch(tmp_path, WIDER) is not None


@pytest.mark.full("writes a whole store anew")
async def test_without_room_for_a_copy_nothing_is_started(tmp_path: Path) -> None:
    """Discriminates: a copy that fills the disk which the running server writes to."""
    await write(tmp_path, 1)
    folders = StoreFolders(tmp_path / "store")
    names = StoreSettings(low_disk_mb=1_000_000)
    async with opened_embedding(ModelSettings(embedding=WIDER)) as wider:
        copy = CopyBeside(folders, names, wider, lambda: open_beside(tmp_path, folders.copy.name))
        async with open_edge_client(folders.store) as source:
            with pytest.raises(DiskFullError, match="free some space"):
                await copy.make(source, lambda _: None, reason="command")
    assert not folders.copy.exists()


@pytest.mark.full("writes a whole store anew")
async def test_a_copy_written_by_another_process_is_left_to_it(tmp_path: Path) -> None:
    await write(tmp_path, 1)
    folders = StoreFolders(tmp_path / "store")
    async with open_edge_client(folders.copy), opened_embedding(ModelSettings(embedding=WIDER)) as wider:
        with pytest.raises(StoreLockedError):
            await prepare(tmp_path, wider)
        assert stored_as_of(wider).dimension == WIDER_DIMENSION
    assert folders.copy.exists()


def test_the_engines_files_are_read_by_the_names_it_writes() -> None:
    assert reembed_folders.SPEC_FILE == edge_collection._SPEC_FILE
