"""The store process: owns all Edge shards of one data folder and answers one request at a time.

`python -P -m services.adapters.edge.process FOLDER SERVER_PID [FLAG…]`, with a stream socket as standard
input. The server's process id is passed because the children of a server that dies early belong to process 1.
The process exists because every engine call holds the GIL. It ends when the other end of the socket closes,
which also happens when the server is killed; Ctrl-C and SIGTERM reach the whole process group and are for the
server to handle, so they are ignored here. Keep the imports few: it must start quickly.

With `--copies` it is a second process, for a folder in which collections are copied: it runs at low priority,
and whatever it was not asked to release is worthless and not closed. With `--unflushed` it keeps no journal.
With `--probing` it first finds out which collection kills a process that reads it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from services.adapters.edge import journal, wire
from services.adapters.edge.collection import TROUBLE, Refusal, log_line, refusal_from, release_mapped_files
from services.adapters.edge.integrity import UnreadablePointsError
from services.adapters.edge.shards import Noted, Shards
from services.store.durable import (
    LOCK_FILE,
    Holder,
    holder_since_now,
    make_folder,
    read_holder,
    try_lock,
    write_holder,
)
from services.store.spawn import UNFLUSHED_FLAG

T = TypeVar("T")
_LOCK_WAIT_S = 1.0
_ORPHAN_WAIT_S = 20.0
_LOCK_RETRY_S = 0.02
_RECEIVE_BYTES = 1 << 18
_FLUSH_WHEN_IDLE_S = 1.0
_NICENESS = 5


def lock_folder(folder: Path, server_pid: int) -> int:
    """Lock `folder` for this process's lifetime on behalf of that server; returns the descriptor holding it.

    Waits a second. If the holder's server has died, the holder is closing its shards, maybe after a long
    compaction, which is worth a longer wait. Raises Refusal(LOCKED), OSError.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began = time.monotonic()
    while not try_lock(descriptor):
        holder = read_holder(descriptor)
        patience_s = _LOCK_WAIT_S if _is_alive(holder.server_pid) else _ORPHAN_WAIT_S
        if time.monotonic() - began > patience_s:
            os.close(descriptor)
            raise Refusal(wire.Verdict.LOCKED, _held_by(folder, holder))
        time.sleep(_LOCK_RETRY_S)
    write_holder(descriptor, holder_since_now(server_pid))
    return descriptor


def _is_alive(pid: int) -> bool:
    """An unknown holder (0) counts as alive and gets the short wait."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(
    folder: Path, server_pid: int, *, copies: bool = False, unflushed: bool = False, probing: bool = False
) -> int:
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    os.umask(0o077)  # otherwise the engine's files are readable by everybody
    if copies:
        os.nice(_NICENESS)
    connection = socket.socket(fileno=0)
    shards = Shards(folder)
    try:
        if not copies:  # the server creates that folder, and it disappears with the server
            _create_folder(folder)
        _open(folder, server_pid, shards, with_journal=not (copies or unflushed), probing=probing)
    except Refusal as refusal:
        with suppress(ConnectionError):
            _send(connection, str(refusal).encode(), refusal.verdict)
        return 1
    except UnreadablePointsError as error:
        log_line(str(error))
        return wire.ENDED_BY_READING
    try:
        _send(connection, b"")
        _serve(connection, shards)
    except ConnectionError:
        pass  # the server has ended: nobody waits for an answer
    finally:
        if not copies:
            shards.close()
    return 0


def _create_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise _unusable(folder, error) from None


def _open(folder: Path, server_pid: int, shards: Shards, *, with_journal: bool, probing: bool) -> None:
    try:
        lock_folder(folder, server_pid)
        _restrict_permissions(folder)
        shards.open_all(probing=probing)
        if with_journal:
            _begin(folder, shards)
        else:
            shards.begin(None)
            journal.remove(folder)
        release_mapped_files(folder)
    except OSError as error:
        raise _unusable(folder, error) from None


def _begin(folder: Path, shards: Shards) -> None:
    if journal.is_missing(folder):
        shards.begin(None, f"{journal.FILE} is missing")
        return
    try:
        opened = journal.Journal(folder)
        opened.check()
        shards.begin(opened)
    except sqlite3.Error as error:
        shards.begin(None, f"{journal.FILE} cannot be read ({error})")


def _restrict_permissions(folder: Path) -> None:
    """Fix files of an earlier version, which anybody who may enter the folder could read."""
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if mode & 0o077 and not path.is_symlink():
            path.chmod(mode & 0o700)


def _unusable(folder: Path, error: OSError) -> Refusal:
    why = error.strerror or error
    sentence = f"the data folder {folder} cannot be used ({why}): set DATA_DIR to one that can be written to"
    return Refusal(wire.Verdict.UNREADABLE, sentence)


def _held_by(folder: Path, holder: Holder) -> str:
    return (
        f"the data folder {folder} is in use by process {holder.server_pid} (its store process is "
        f"{holder.pid}) since {holder.started}; the embedded store serves one server process: "
        f"stop that one, choose another DATA_DIR, or set QDRANT_URL"
    )


def _serve(connection: socket.socket, shards: Shards) -> None:
    """Changes that arrive together share a flush; each is on disk before it is applied."""
    decoder = msgspec.msgpack.Decoder(wire.Request)
    pending = bytearray()
    waiting: list[Noted | bytes] = []
    while _receive(connection, pending, shards):
        while (frame := wire.take_frame(pending)) is not None:
            _take(connection, shards, waiting, decoder, frame[1])
        _apply_waiting(connection, shards, waiting)


def _take(
    connection: socket.socket,
    shards: Shards,
    waiting: list[Noted | bytes],
    decoder: msgspec.msgpack.Decoder[wire.Request],
    body: bytes,
) -> None:
    """A request that is not a change, or that selects points by a filter, must see the changes before it."""

    def note() -> Noted | bytes:
        request = decoder.decode(body)
        if not isinstance(request, wire.CHANGES):
            _apply_waiting(connection, shards, waiting)
            return wire.frame(wire.encode(shards.answer(request)))
        if getattr(request, "filter", None) is not None:
            _apply_waiting(connection, shards, waiting)
        return shards.note(request)

    answer = _answered(shards, note)
    waiting.append(answer)
    if isinstance(answer, bytes):
        _apply_waiting(connection, shards, waiting)


def _apply_waiting(connection: socket.socket, shards: Shards, waiting: list[Noted | bytes]) -> None:
    """Apply the noted changes and send all replies; refusals, if nothing can be written."""
    if not waiting:
        return
    try:
        is_noted = _try_commit(shards)
    except (sqlite3.Error, OSError) as error:
        log_line(f"{error}: refused")
        refused = wire.frame(TROUBLE.encode(), wire.Verdict.UNAVAILABLE)
        connection.sendall(b"".join(each if isinstance(each, bytes) else refused for each in waiting))
        waiting.clear()
        return
    replies = [each if isinstance(each, bytes) else _apply(shards, each) for each in waiting]
    if not is_noted or shards.is_full:
        refused = _answered(shards, lambda: _flushed(shards))
        if refused and not is_noted:
            replies = [refused for _ in replies]
    connection.sendall(b"".join(replies))
    waiting.clear()


def _try_commit(shards: Shards) -> bool:
    """False when the disk is full and the engine must be flushed instead. Raises sqlite3.Error, OSError."""
    try:
        shards.commit()
    except (sqlite3.Error, OSError) as error:
        if shards.has_room:  # the disk fails, which the engine's flush does not always notice
            raise
        log_line(f"{error}: the engine flushes instead")
        return False
    return True


def _flushed(shards: Shards) -> bytes:
    shards.flush()
    return b""


def _apply(shards: Shards, noted: Noted) -> bytes:
    return _answered(shards, lambda: wire.frame(wire.encode(shards.make(noted))))


def _answered(shards: Shards, work: Callable[[], T]) -> T | bytes:
    """The result of `work`, or a refusal's frame."""
    try:
        return work()
    except Refusal as error:
        refusal = error
    except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
        refusal = refusal_from(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the engine survives its own panics
            raise
        refusal = Refusal(wire.Verdict.UNAVAILABLE, TROUBLE)
        log_line(str(error))
    return wire.frame(shards.without_path(refusal).encode(), refusal.verdict)


def _receive(connection: socket.socket, pending: bytearray, shards: Shards) -> bool:
    """Add what has arrived to `pending`; False at the end. While idle, unflushed writes are flushed first,
    then the data is verified."""
    if shards.unflushed and not select.select([connection], [], [], _FLUSH_WHEN_IDLE_S)[0]:
        _flush(shards)
    while shards.is_behind and not select.select([connection], [], [], 0)[0]:
        shards.idle_step()
    received = connection.recv(_RECEIVE_BYTES)
    pending += received
    return bool(received)


def _flush(shards: Shards) -> None:
    """A failed flush loses nothing, as the log has everything; it is retried after the next write."""
    try:
        shards.flush()
        shards.hold_reserve()
    except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
        shards.postpone_flush()
        log_line(f"flushing failed: {error}")


def _send(connection: socket.socket, body: bytes, verdict: wire.Verdict = wire.Verdict.OK) -> None:
    connection.sendall(wire.frame(body, verdict))


if __name__ == "__main__":
    flags = sys.argv[3:]
    known = {"copies": wire.COPIES_FLAG, "unflushed": UNFLUSHED_FLAG, "probing": wire.PROBING_FLAG}
    chosen = {name: flag in flags for name, flag in known.items()}
    os._exit(main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), **chosen))  # all is closed: skip teardown
