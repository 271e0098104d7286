"""An upload as a file: the length of a header, the header, the bytes as they came. Blocking."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from core.errors import DiskFullError, StoreUnavailableError
from services.knowledge.upload import Upload

SUFFIX = ".upload"
PARTIAL = ".partial"
_SIZE_BYTES = 4
_MAX_HEADER = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Kept(msgspec.Struct, frozen=True):
    """What stands before an upload's bytes in its file."""

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
_decoder = msgspec.msgpack.Decoder(Kept)


def write_upload(path: Path, kept: Kept, content: bytes) -> None:
    """On the disk when this returns; not there at all when it raises OSError."""
    partial = path.with_suffix(PARTIAL)
    header = _encoder.encode(kept)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(len(header).to_bytes(_SIZE_BYTES, "big") + header)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync_folder(path.parent)
    except OSError:
        partial.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


def read_header(path: Path) -> Kept | None:
    """None when it is no such file, or no longer there."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(_SIZE_BYTES), "big")
            return _decoder.decode(file.read(size)) if 0 < size <= _MAX_HEADER else None
    except (OSError, msgspec.DecodeError):
        return None


def read_content(path: Path, content_hash: str) -> bytes:
    """Raises StoreUnavailableError when the bytes are not what they were."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreUnavailableError(f"The upload cannot be read: {error.strerror}.") from error
    content = whole[_SIZE_BYTES + int.from_bytes(whole[:_SIZE_BYTES], "big") :]
    if hashlib.sha256(content).hexdigest() != content_hash:
        raise StoreUnavailableError("The upload is not what it was when it was accepted.")
    return content


def locked(path: Path) -> int | None:
    """The descriptor that holds the lock; None when another process does, or its folder has just gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def sync_folder(folder: Path) -> None:
    """So that a new name survives a power cut, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(error: OSError) -> StoreUnavailableError:
    if error.errno in _FULL:
        return DiskFullError("The disk is full: the upload was not accepted. What is stored can be read.")
    return StoreUnavailableError(f"The upload cannot be kept on the disk: {error.strerror}.")
