"""Spooled uploads: on disk until they are ingested, so that accepted ones survive a crash.

`incoming/<life>/<job>.upload`: each run of a server (a life) has a folder and holds the lock in it. The next
life takes over what ended ones left behind. Names are UUIDs, never file names of uploads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from core.errors import StoreUnavailableError
from core.knowledge import Upload
from services.store.durable import PARTIAL, make_folder, sync_folder, try_lock, unwritable, write_durably

FOLDER = "incoming"  # below DATA_DIR
LOCK = "lock"
SUFFIX = ".upload"
_SIZE_BYTES = 4
_MAX_HEADER = 1 << 16
log = structlog.get_logger()


class UploadHeader(msgspec.Struct, frozen=True):
    """The header of a spooled file: the header's length, the header, then the upload's bytes."""

    job_id: str
    document_id: str
    content_hash: str
    owner: str
    file_name: str
    size_bytes: int
    external_id: str | None = None
    tags: tuple[str, ...] = ()
    date: str | None = None

    def upload(self, content: bytes) -> Upload:
        return Upload(self.owner, self.file_name, content, self.external_id, self.tags, self.date)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(UploadHeader)


def write_upload(path: Path, upload: UploadHeader, content: bytes) -> None:
    """Write a spooled file durably; if this raises OSError, no file is left."""
    header = _encoder.encode(upload)
    try:
        write_durably(path, len(header).to_bytes(_SIZE_BYTES, "big"), header, content)
    except OSError:
        path.with_name(path.name + PARTIAL).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


def read_header(path: Path) -> UploadHeader | None:
    """Return None if the file is not a spooled upload or no longer exists."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(_SIZE_BYTES), "big")
            return _decoder.decode(file.read(size)) if 0 < size <= _MAX_HEADER else None
    except (OSError, msgspec.DecodeError):
        return None


def read_content(path: Path, content_hash: str) -> bytes:
    """Raises StoreUnavailableError if the bytes do not match `content_hash`."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreUnavailableError(f"The upload cannot be read: {error.strerror}.") from error
    content = whole[_SIZE_BYTES + int.from_bytes(whole[:_SIZE_BYTES], "big") :]
    if hashlib.sha256(content).hexdigest() != content_hash:
        raise StoreUnavailableError("The upload has changed since it was accepted.")
    return content


def locked(path: Path) -> int | None:
    """Return a descriptor that holds the lock; None if another process does, or its folder is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


class Spool:
    """`folder` is created with the first upload."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives: dict[Path, int] = {}  # folders whose lock is held, with its descriptor
        self._uploads_by_job: dict[str, tuple[Path, UploadHeader]] = {}
        self._lock = asyncio.Lock()

    async def keep(self, header: UploadHeader, content: bytes) -> None:
        """Spool an upload durably, or not at all.

        Raises DiskFullError, StoreUnavailableError.
        """
        async with self._lock:
            try:
                path = await asyncio.to_thread(self._write, header, content)
            except OSError as error:
                raise unwritable("upload", error) from error
        self._uploads_by_job[header.job_id] = path, header

    async def claim(self) -> list[UploadHeader]:
        """Take over the uploads of ended lives; return these and our own."""
        async with self._lock:
            for path, header in await asyncio.to_thread(self._take_over):
                self._uploads_by_job[header.job_id] = path, header
        return [header for _, header in self._uploads_by_job.values()]

    async def read(self, job_id: str) -> bytes:
        """Raises StoreUnavailableError if the upload is missing or its bytes have changed."""
        if job_id not in self._uploads_by_job:
            raise StoreUnavailableError("The upload no longer exists.")
        path, header = self._uploads_by_job[job_id]
        return await asyncio.to_thread(read_content, path, header.content_hash)

    async def drop(self, job_id: str) -> None:
        if job_id in self._uploads_by_job:
            path, _ = self._uploads_by_job.pop(job_id)
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def drop_others(self, document_id: str, except_job: str) -> None:
        """Drop the document's uploads, except that of one job."""
        for _, header in list(self._uploads_by_job.values()):
            if header.document_id == document_id and header.job_id != except_job:
                await self.drop(header.job_id)

    async def find(self, document_ids: Collection[str], owner: str = "") -> tuple[int, int]:
        """Return how many uploads all lives have, and how many of them belong to these documents or this
        owner."""
        uploads = await asyncio.to_thread(lambda: list(self._all()))
        return len(uploads), sum(_is_of(header, document_ids, owner) for _, header in uploads)

    async def erase(self, document_ids: Collection[str], owner: str = "") -> int:
        """Erase the uploads of these documents or this owner, in all lives. Returns how many."""
        erased = await asyncio.to_thread(self._erase, frozenset(document_ids), owner)
        for header in erased:
            self._uploads_by_job.pop(header.job_id, None)
        return len(erased)

    async def close(self) -> None:
        """Release the locks; remaining uploads are left for the next life."""
        await asyncio.to_thread(self._release_all)

    def _write(self, header: UploadHeader, content: bytes) -> Path:
        path = self._own_life() / f"{header.job_id}{SUFFIX}"
        write_upload(path, header, content)
        return path

    def _own_life(self) -> Path:
        """Return a folder whose lock we hold; a new one is named only once locked, so nobody claims it."""
        for life in self._lives:
            return life
        make_folder(self._folder)
        unnamed = self._folder / f".{uuid.uuid4()}"
        unnamed.mkdir(mode=0o700)
        lock = locked(unnamed / LOCK)
        if lock is None:
            raise PermissionError(1, "its lock cannot be taken")
        life = unnamed.rename(self._folder / unnamed.name[1:])
        self._lives[life] = lock
        sync_folder(self._folder)
        return life

    def _take_over(self) -> list[tuple[Path, UploadHeader]]:
        taken: list[tuple[Path, UploadHeader]] = []
        for life in self._all_lives():
            if life in self._lives or (lock := locked(life / LOCK)) is None:
                continue
            uploads = list(_uploads(life))
            for left in life.glob(f"*{PARTIAL}"):
                left.unlink(missing_ok=True)
            if uploads:
                self._lives[life] = lock
                taken += uploads
            else:
                _release(life, lock)
        return taken

    def _all_lives(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if path.is_dir() and path.name[0] != ".")

    def _all(self) -> Iterator[tuple[Path, UploadHeader]]:
        for life in self._all_lives():
            yield from _uploads(life)

    def _erase(self, document_ids: Collection[str], owner: str) -> list[UploadHeader]:
        uploads = [(path, header) for path, header in self._all() if _is_of(header, document_ids, owner)]
        for path, _ in uploads:
            path.unlink(missing_ok=True)
        return [header for _, header in uploads]

    def _release_all(self) -> None:
        for life, lock in self._lives.items():
            _release(life, lock)
        self._lives.clear()
        with suppress(OSError):  # missing, or not empty
            self._folder.rmdir()


def _uploads(life: Path) -> Iterator[tuple[Path, UploadHeader]]:
    for path in sorted(life.glob(f"*{SUFFIX}")):
        header = read_header(path)
        if header is not None:
            yield path, header
        elif path.exists():
            log.warning("upload_unreadable", file=path.name)


def _release(life: Path, lock: int) -> None:
    """Release the lock, and delete the folder if it holds no uploads."""
    if not any(life.glob(f"*{SUFFIX}")):
        with suppress(OSError):
            (life / LOCK).unlink()
            life.rmdir()
    os.close(lock)


def _is_of(header: UploadHeader, document_ids: Collection[str], owner: str) -> bool:
    return header.document_id in document_ids or (bool(owner) and header.owner == owner)
