"""One collection on disk, and how damage to it is detected. Runs in the store process only.

On disk: `collection.json` (the spec) beside `shard/` (the engine's files).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import msgspec
import qdrant_edge as edge

from core.failpoints import failpoint
from core.text import counted
from services.adapters.edge import engine, wire
from services.store.durable import free_bytes, sync_folder, write_durably

_SPEC_FILE = "collection.json"
_SHARD_FOLDER = "shard"
_CLOSED_FILE = "closed.json"
_DISK_FULL = ("No space left", "quota exceeded")
_ENGINE_TROUBLE = ("Service runtime error", "Service internal error", "Out of memory")
_SAMPLED_PLACES, _SAMPLED_POINTS = 32, 4
_FLOAT_BYTES = 4
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)  # the engine's files are mostly zeros, and comparing is the cheapest test
_PAGE = 256
_PROBE_S = 100
_PR_SET_PDEATHSIG = 1
UNKNOWN_POINT = "No point with id"
TROUBLE = "the store cannot read or write one of its files; the log has the details: run wenmai doctor"


class Refusal(Exception):  # noqa: N818 — a verdict with a sentence, not always an error
    """A request, or the start, ends with this verdict and this plain sentence."""

    def __init__(self, verdict: wire.Verdict, sentence: str) -> None:
        super().__init__(sentence)
        self.verdict = verdict


def log_line(sentence: str) -> None:
    """Write it to the server's log, or nowhere: a log on a full disk must not end the store's process."""
    with suppress(OSError):
        print(f"store: {sentence}", file=sys.stderr)  # noqa: T201


def refusal_from(error: Exception) -> Refusal:
    """The engine raises bare `Exception`; only its message shows whose fault it was."""
    sentence = str(error)
    if any(mark in sentence for mark in _DISK_FULL):
        return Refusal(wire.Verdict.DISK_FULL, sentence)
    if isinstance(error, OSError | sqlite3.Error) or any(mark in sentence for mark in _ENGINE_TROUBLE):
        log_line(sentence)  # the engine's message is for the log
        return Refusal(wire.Verdict.UNAVAILABLE, TROUBLE)
    if UNKNOWN_POINT in sentence:
        return Refusal(wire.Verdict.UNKNOWN_POINT, sentence)
    return Refusal(wire.Verdict.REFUSED, sentence)


class Collection(msgspec.Struct):
    spec: wire.CollectionSpec
    shard: edge.EdgeShard


class Unreadable(Refusal):
    """A collection's files cannot be read, and the reason is not a full disk."""

    def __init__(self, sentence: str) -> None:
        super().__init__(wire.Verdict.UNREADABLE, sentence)


Fingerprint = tuple[int, int]
"""A file's size, and a checksum of its non-zero blocks."""


class Closed(msgspec.Struct):
    """Written by a clean close, so that the next start notices what was lost or changed since.

    `files` are the collection's, by their paths in its folder, `journal` is the store's; earlier versions
    wrote only the number of points.
    """

    points: int
    files: dict[str, Fingerprint] | None = None
    journal: Fingerprint | None = None


def create_collection(folder: Path, spec: wire.CollectionSpec) -> None:
    (folder / _SHARD_FOLDER).mkdir(parents=True)
    edge.EdgeShard.create(str(folder / _SHARD_FOLDER), engine.shard_config(spec)).close()
    write_durably(folder / _SPEC_FILE, msgspec.json.encode(spec))


def open_collection(folder: Path) -> Collection:
    """Raises Unreadable: a damaged collection must never look empty."""
    left = read_last_close(folder)
    if left.doubt:
        raise _unreadable(folder, left.doubt)
    collection = load_collection(folder)
    if doubt := doubt_about_points(collection, left):
        raise _unreadable(folder, doubt)
    drop_close_record(folder)
    return collection


def load_collection(folder: Path) -> Collection:
    """Load a collection without comparing it with what its last close recorded. Raises Unreadable."""
    try:
        spec = msgspec.json.decode((folder / _SPEC_FILE).read_bytes(), type=wire.CollectionSpec)
        collection = Collection(spec, edge.EdgeShard.load(str(folder / _SHARD_FOLDER)))
        _read_sample(collection.shard)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _unreadable(folder, str(error)) from None
    return collection


def is_readable(folder: Path) -> bool:
    """Whether all of it can be read without killing the process: files are mapped, and reading beyond the end
    of a truncated one is fatal. Call it before the engine has any thread in this process."""
    child = os.fork()
    if not child:
        signal.alarm(_PROBE_S)
        _die_with_parent()
        try:
            _read_all(load_collection(folder).shard)
        except BaseException:  # noqa: BLE001 — the engine raises bare Exception, and panics
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _die_with_parent() -> None:
    """The forked child also holds the folder's lock and must not outlive its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_all(shard: edge.EdgeShard) -> None:
    offset = None
    while True:
        page = edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=True, with_vector=True)
        _, offset = shard.scroll(page)
        if offset is None:
            return


def _read_sample(shard: edge.EdgeShard) -> None:
    """Read a few points from all over the collection: loading reads none, and a truncated file should be
    noticed now, not by a request."""
    for part in range(_SAMPLED_PLACES):
        offset = UUID(int=part * 2**128 // _SAMPLED_PLACES) if part else None
        shard.scroll(
            edge.ScrollRequest(offset=offset, limit=_SAMPLED_POINTS, with_payload=True, with_vector=True)
        )


def _unreadable(folder: Path, why: str) -> Refusal:
    full = any(mark in why for mark in _DISK_FULL)
    advice = "free some space on its disk" if full else "restore the folder from a backup"
    sentence = " ".join(f"the collection in {folder} cannot be read ({why}); {advice}".split())
    return Refusal(wire.Verdict.UNREADABLE, sentence) if full else Unreadable(sentence)


class LastClose(NamedTuple):
    """What the last close recorded of a collection: `sealed` if all files are unchanged since; `doubt` names
    what is not; `points` is from an earlier version, which only counted. All unset after a kill."""

    sealed: bool = False
    doubt: str = ""
    points: int | None = None
    journal: Fingerprint | None = None


def read_last_close(folder: Path) -> LastClose:
    note = folder / _CLOSED_FILE
    if not note.exists():
        return LastClose()
    try:
        closed = msgspec.json.decode(note.read_bytes(), type=Closed)
    except msgspec.DecodeError as error:
        return LastClose(doubt=f"{note.name}: {error}")
    if closed.files is None:
        return LastClose(points=closed.points)
    differing = [name for name, left in closed.files.items() if fingerprint(folder / name) != left]
    if not differing:
        return LastClose(sealed=True, journal=closed.journal)
    more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    return LastClose(doubt=f"{sorted(differing)[0]}{more}: not as it was left, or missing")


def is_journal_intact(journal: Path, left: Iterable[LastClose]) -> bool:
    """Whether it is the journal recorded when all collections were closed; False also if an earlier version,
    whose changes it does not have, has used the store since."""
    collections = list(left)
    if any(each.points is not None for each in collections):
        return False
    if not collections or not all(each.sealed for each in collections):
        return True  # after a kill it is the only record
    return {each.journal for each in collections} == {fingerprint(journal)}


def doubt_about_points(collection: Collection, left: LastClose) -> str:
    present = collection.shard.count(edge.CountRequest(exact=True))
    if left.points in (None, present):
        return ""
    return f"{counted(left.points, 'point')} at the last close, now {present}"


def drop_close_record(folder: Path) -> None:
    """Delete the record of the last close, which no longer applies."""
    note = folder / _CLOSED_FILE
    if note.exists():
        note.unlink()
        sync_folder(folder)


def close_collection(folder: Path, collection: Collection, journal: Fingerprint | None = None) -> None:
    left = collection.shard.count(edge.CountRequest(exact=True))
    collection.shard.close()
    files = {
        str(Path(path, name).relative_to(folder)): seal
        for path, _, names in os.walk(folder)
        for name in names
        if not name.startswith(_CLOSED_FILE) and (seal := fingerprint(Path(path, name))) is not None
    }
    try:
        write_durably(folder / _CLOSED_FILE, msgspec.json.encode(Closed(left, files, journal)))
    except OSError as error:  # the next start treats it as after a crash
        log_line(f"{folder.name} is not sealed: {error.strerror}")


def fingerprint(path: Path) -> Fingerprint | None:
    """None when there is no such file. Holes, most of the engine's large files, are not read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        size, checksum = os.fstat(descriptor).st_size, 0
        for at, block in _blocks(descriptor, size):
            if block != (_ZEROS if len(block) == _BLOCK_BYTES else bytes(len(block))):
                checksum = zlib.crc32(block, zlib.crc32(at.to_bytes(8, "big"), checksum))
    finally:
        os.close(descriptor)
    return size, checksum


def _blocks(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The data in a file, as blocks at offsets that do not depend on its holes."""
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA) // _BLOCK_BYTES * _BLOCK_BYTES
        except OSError as error:
            if error.errno != errno.ENXIO:  # the rest is a hole
                raise
            return
        yield at, os.pread(descriptor, _BLOCK_BYTES, at)
        at += _BLOCK_BYTES


def check_vectors(spec: wire.CollectionSpec, points: Iterable[wire.Point]) -> None:
    """Refuse a batch with a vector that does not fit; the engine would write the points before it."""
    for point in points:
        for name, vector in point.vectors.items():
            _check_vector(spec, name, vector)


def _check_vector(spec: wire.CollectionSpec, name: str, vector: wire.Vector) -> None:
    known = spec.dense if isinstance(vector, bytes) else spec.sparse_idf
    if name not in known:
        kind = "dense" if isinstance(vector, bytes) else "sparse"
        raise Refusal(wire.Verdict.REFUSED, f"Not existing vector name error: {name} ({kind})")
    if isinstance(vector, bytes) and len(vector) != spec.dense[name].size * _FLOAT_BYTES:
        got, expected = len(vector) // _FLOAT_BYTES, spec.dense[name].size
        raise Refusal(
            wire.Verdict.REFUSED, f"Vector dimension error: {name} expected dim: {expected}, got {got}"
        )


def check_room(folder: Path, reserve_bytes: int) -> None:
    left = free_bytes(folder)
    if left < reserve_bytes:
        raise Refusal(
            wire.Verdict.DISK_FULL,
            f"the disk of the data folder is full: {left >> 20} MB are left, and the last "
            f"{reserve_bytes >> 20} MB are kept free",
        )


# Replaces a collection by its compacted copy. Runs in the store process only.
#
# An open shard knows its files by path, so both shards are closed while folders are renamed: NAME → NAME.old,
# copy → NAME, open it and write what changed in the meantime, delete NAME.old. While NAME.old exists, it is
# the collection, and a start puts it back; once it is removed, NAME is.


OLD = ".old"


class _Summary(NamedTuple):
    """What must be equal in the copy and the original."""

    points: int
    indexes: frozenset[str]


def adopt(place: Path, old: Collection, copy: Path, last: wire.LastChanged) -> Collection:
    """Close `old` and return the copy, open in its place; the caller must flush what was written last.

    Raises Refusal(UNAVAILABLE) when the copy differs from the collection; `old` is then closed, too, and must
    be reopened.
    """
    known = _summary(old)
    old.shard.close()
    failpoint("compact.adopting")
    aside = place.rename(place.with_name(place.name + OLD))
    try:
        copy.rename(place)
        sync_folder(place.parent)
        failpoint("compact.renamed")
        adopted = _open_changed(place, last, known)
    except Exception as error:  # the engine raises bare Exception
        put_back(aside)
        raise Refusal(wire.Verdict.UNAVAILABLE, f"the compacted copy was not taken: {error}") from error
    aside.rename(copy)
    sync_folder(place.parent)
    failpoint("compact.adopted")
    return adopted


def _open_changed(place: Path, last: wire.LastChanged, known: _Summary) -> Collection:
    adopted = open_collection(place)
    try:
        _write(adopted.shard, last)
        _compare(_summary(adopted), known)
    except Exception:
        adopted.shard.close()
        raise
    release_mapped_files(place)
    return adopted


def _summary(collection: Collection) -> _Summary:
    shard = collection.shard
    return _Summary(shard.count(edge.CountRequest(exact=True)), frozenset(shard.info().payload_schema))


def _compare(copy: _Summary, original: _Summary) -> None:
    if copy != original:
        raise Refusal(wire.Verdict.UNAVAILABLE, f"it has {copy} instead of {original}")


def _write(shard: edge.EdgeShard, last: wire.LastChanged) -> None:
    if last.records:
        points = engine.points(wire.point_of(record) for record in last.records)
        shard.update(edge.UpdateOperation.upsert_points(points))
    if last.deleted:
        shard.update(edge.UpdateOperation.delete_points(list(last.deleted)))


def put_back(aside: Path) -> None:
    """Undo an unfinished adoption; both shards are closed."""
    place = aside.with_name(aside.name.removesuffix(OLD))
    if place.exists():
        shutil.rmtree(place)
    aside.rename(place)
    sync_folder(place.parent)


# Frees memory that loading shards has touched needlessly.
#
# The engine faults in every page of its mapped files when it loads them, holes included: 160 MB resident for
# five empty collections. Released pages stay in the page cache and come back when they are used; nothing is
# lost, as the mappings are shared with their files.


_MAPS = Path("/proc/self/maps")
_MADV_DONTNEED = 4
_SHARED = "s"


def release_mapped_files(folder: Path) -> None:
    """Only Linux lists a process's mappings in a file; elsewhere this does nothing."""
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in _shared_mappings(folder.resolve()):
        madvise(start, end - start, _MADV_DONTNEED)


def _shared_mappings(folder: Path) -> Iterator[tuple[int, int]]:
    """Lines have the form `start-end rwxs offset device inode    path`."""
    for line in _MAPS.read_text().splitlines():
        addresses, permissions, *_, path = line.split(maxsplit=5)
        if permissions.endswith(_SHARED) and path.startswith(f"{folder}/"):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)


_UNUSED_ID = str(UUID(int=0))  # no real point has this id
_NO_OP = edge.UpdateOperation.delete_points([_UNUSED_ID])
"""A no-op that only consumes an operation number."""
_MAX_NUMBERS = 1 << 24  # 1.5 µs each; a point with a higher number is damaged


def advance_numbers(folder: Path, shard: edge.EdgeShard) -> str:
    """The engine takes operation numbers from its log and silently skips an operation whose number is below
    that of the point's last one. If the log was lost or cut, all later ones would be skipped, so numbers are
    consumed until a new point's is the highest. Flushes; a point left here by a kill is removed by the next
    call. Returns what is wrong with its points' numbers, "" for nothing."""
    newest = _newest_version(folder)
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(_UNUSED_ID, {}, {})]))
    shard.flush()
    behind = newest if newest and _newest_version(folder) == newest else 0
    if 0 < behind <= _MAX_NUMBERS:
        log_line(f"{folder.name}: its log was lost: skipping {newest} numbers")
        for _ in range(newest + 2):
            shard.update(_NO_OP)
    shard.update(_NO_OP)
    return f"the number of a point's last change cannot be {behind}" if behind > _MAX_NUMBERS else ""


def _newest_version(folder: Path) -> int:
    """The highest number of a flushed point in the segments; 0 for none."""
    newest = 0
    for path in folder.glob(f"{_SHARD_FOLDER}/segments/*/mutable_id_tracker.versions"):
        whole = path.read_bytes()
        versions = array("Q", whole[: len(whole) // 8 * 8])
        newest = max(newest, *versions) if versions else newest
    return newest
