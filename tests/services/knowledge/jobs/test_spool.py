"""Accepted uploads are on disk until they are ingested, and resumed after a crash."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import DiskFullError, StoreUnavailableError, UnavailableError
from core.knowledge import DocumentStatus, JobStage
from services.knowledge.jobs import queue as jobs_module
from services.knowledge.jobs.spool import FOLDER, Spool, UploadHeader
from services.store.dialect import VectorStore
from services.store.durable import unwritable
from tests.support.stores.knowledge import (
    ME,
    SERVER_SETTINGS,
    TEXT,
    HeldEmbedding,
    added,
    memory_store,
    open_bench,
    until,
    upload,
)


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with memory_store() as opened:
        yield opened


def header(job_id: str = "job", document_id: str = "document", owner: str = "ann") -> UploadHeader:
    return UploadHeader(job_id, document_id, "0" * 64, owner, "a.md", 1)


def below(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_nothing_is_created_before_it_is_needed_and_nothing_is_left_afterwards(
    store: VectorStore, tmp_path: Path
) -> None:
    async with open_bench(store, data_dir=tmp_path) as bench:
        await bench.knowledge.recover()
        assert below(tmp_path) == []
        await added(bench, upload())
        assert [path.name for path in files(tmp_path)] == ["lock"]
    assert below(tmp_path) == []


async def test_an_accepted_upload_is_on_disk_with_mode_0600_until_it_is_ingested(
    store: VectorStore, tmp_path: Path
) -> None:
    held = HeldEmbedding()
    async with open_bench(store, data_dir=tmp_path, embedding_model=held) as bench:
        addition = await bench.knowledge.add(upload(file_name="geheim.md"))
        (path,) = [path for path in files(tmp_path) if path.name != "lock"]
        assert path.stem == addition.job_id
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700
        assert TEXT.encode() in path.read_bytes()
        held.let_all()
        await bench.knowledge.wait(addition.job_id or "", ME)
        assert not path.exists()


async def test_the_next_start_resumes_an_upload_as_the_same_job_and_embeds_nothing_twice(
    store: VectorStore, tmp_path: Path
) -> None:
    """Discriminates: recover() failing accepted uploads; a resumed job that embeds everything again."""
    held = HeldEmbedding()
    async with open_bench(store, data_dir=tmp_path, embedding_model=held) as bench:
        addition = await bench.knowledge.add(replace(upload(), tags=("x",), date="2026"))
        job_id = addition.job_id or ""
        held.let_through(20)
        while await bench.chunk_count() < 16:  # noqa: ASYNC110  # the store tells nobody
            await asyncio.sleep(0.005)  # between two checks
        closing = asyncio.create_task(bench.knowledge.close())
        await asyncio.sleep(0.01)  # it waits for the current piece
        held.let_all()
        await closing
    again = HeldEmbedding()
    again.let_all()
    async with open_bench(store, data_dir=tmp_path, embedding_model=again) as bench:
        assert await bench.knowledge.recover() == 0
        assert await bench.chunk_count(ready=True) == 0
        assert await bench.knowledge.recover() == 0  # as when the store is retried
        outcome = await bench.knowledge.wait(job_id, ME)
        assert (outcome.stage, outcome.done, outcome.total) == (JobStage.DONE, 40, 40)
        assert outcome.reused >= 16
        assert again.embedded == 40 - outcome.reused
        document = await bench.knowledge.get_document(addition.document.document_id, ME)
        assert (document.status, document.tags, document.date) == (DocumentStatus.READY, ("x",), "2026")
        assert (document.size_bytes, document.chunk_count) == (len(TEXT.encode()), 40)
        assert await bench.chunk_count(ready=True) == 40


async def test_a_new_version_is_resumed_too_and_the_old_one_is_searched_meanwhile(
    store: VectorStore, tmp_path: Path
) -> None:
    held = HeldEmbedding()
    held.let_through(40)
    first = replace(upload(), external_id="rules")
    async with open_bench(store, data_dir=tmp_path, embedding_model=held) as bench:
        old = await added(bench, first)
        newer = await bench.knowledge.add(replace(first, content=TEXT[::-1].encode()))
        await until(bench, newer.job_id or "", JobStage.EMBEDDING)
        held.let_all()
    async with open_bench(store, data_dir=tmp_path) as bench:
        assert await bench.knowledge.get_document(old.document_id, ME) == old
        await bench.knowledge.recover()
        await bench.knowledge.wait(newer.job_id or "", ME)
        document = await bench.knowledge.get_document(old.document_id, ME)
        assert document.content_hash != old.content_hash
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == document.chunk_count


@pytest.mark.parametrize("fields", [{"source": "folder"}, {"comes_again": True}])
async def test_a_followed_file_is_not_spooled_and_is_failed_after_a_crash(
    store: VectorStore, tmp_path: Path, fields: dict[str, str]
) -> None:
    held = HeldEmbedding()
    what = replace(upload(), external_id="a.md", **fields)  # type: ignore[arg-type]
    async with open_bench(store, data_dir=tmp_path, embedding_model=held) as bench:
        addition = await bench.knowledge.add(what)
        await until(bench, addition.job_id or "", JobStage.EMBEDDING)
        assert not files(tmp_path)
        held.let_all()
    async with open_bench(store, data_dir=tmp_path) as bench:
        assert await bench.knowledge.recover() == 1
        document = await bench.knowledge.get_document(addition.document.document_id, ME)
        assert (document.status, document.content_hash) == (DocumentStatus.FAILED, "")
        assert "again" in (document.error or "")
        assert await bench.chunk_count() == 0
        assert (await added(bench, what)).status is DocumentStatus.READY


async def test_another_workers_uploads_are_left_to_it_until_it_has_ended(
    store: VectorStore, tmp_path: Path
) -> None:
    """Discriminates: taking over without the lock."""
    held = HeldEmbedding()
    async with open_bench(store, SERVER_SETTINGS, tmp_path) as other:
        async with open_bench(store, SERVER_SETTINGS, tmp_path, held) as bench:
            addition = await bench.knowledge.add(upload())
            await until(bench, addition.job_id or "", JobStage.EMBEDDING)
            assert await other.knowledge.recover() == 0
            assert not other.knowledge.jobs.list(ME)
            held.let_all()
        assert await other.knowledge.recover() == 0
        outcome = await other.knowledge.wait(addition.job_id or "", ME)
        assert outcome.stage is JobStage.DONE
        assert not [path for path in files(tmp_path) if path.name != "lock"]


async def test_an_upload_that_cannot_be_spooled_is_not_accepted(store: VectorStore, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    async with open_bench(store, data_dir=tmp_path) as bench:
        with pytest.raises(StoreUnavailableError):
            await bench.knowledge.add(upload())
        assert not (await bench.knowledge.documents.page(ME, 10)).documents
        assert not bench.knowledge.jobs.list(ME)


async def test_of_many_concurrent_uploads_only_those_that_fit_are_accepted(
    store: VectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: checking for room only before parsing; a refused upload's file or record that stays."""
    monkeypatch.setattr(jobs_module, "MAX_WAITING_CHUNKS", 100)  # each document has 40
    held = HeldEmbedding()
    async with open_bench(store, data_dir=tmp_path, embedding_model=held) as bench:
        many = [bench.knowledge.add(upload(f"{TEXT}\n\n{n}")) for n in range(12)]
        outcomes = await asyncio.gather(*many, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, UnavailableError)]
        accepted = len(outcomes) - len(refused)
        waiting = [job.total for job in bench.knowledge.jobs.list(ME) if job.stage is JobStage.WAITING]
        assert 0 < accepted < 12
        assert sum(waiting) <= 100
        assert len((await bench.knowledge.documents.page(ME, 50)).documents) == accepted
        assert len([path for path in files(tmp_path) if path.name != "lock"]) == accepted
        assert len(bench.knowledge.jobs.list(ME)) == accepted
        held.let_all()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported_as_such() -> None:
    with pytest.raises(OSError, match="space") as raised, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert isinstance(unwritable("upload", raised.value), DiskFullError)
    assert not isinstance(unwritable("upload", PermissionError(13, "no")), DiskFullError)


async def test_a_truncated_or_foreign_file_is_ignored(tmp_path: Path) -> None:
    spool = Spool(tmp_path / FOLDER)
    await spool.keep(header(), b"x")
    await spool.close()
    (life,) = (tmp_path / FOLDER).iterdir()
    (life / "cut.upload").write_bytes(b"\0\0\0\x50abc")
    (life / "half.partial").write_bytes(b"abc")
    spool = Spool(tmp_path / FOLDER)
    assert await spool.claim() == [header()]
    with pytest.raises(StoreUnavailableError, match="has changed since it was accepted"):
        await spool.read("job")
    assert not (life / "half.partial").exists()
    await spool.close()


async def test_all_files_of_a_document_or_an_owner_are_found_and_erased(
    tmp_path: Path,
) -> None:
    one, other = Spool(tmp_path / FOLDER), Spool(tmp_path / FOLDER)
    await one.keep(header("1", "a"), b"x")
    await other.keep(header("2", "a", "bob"), b"x")
    await other.keep(header("3", "b"), b"x")
    looking = Spool(tmp_path / FOLDER)
    assert await looking.find(["a"]) == (3, 2)
    assert await looking.find([], "ann") == (3, 2)
    assert await looking.erase(["a"]) == 2
    assert await looking.find(["a", "b"]) == (1, 1)
    for spool in (one, other, looking):
        await spool.close()
