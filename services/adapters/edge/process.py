"""The store process: owns all Edge shards of one data folder, answers one request after the other.

`python -P -m services.adapters.edge.process FOLDER SERVER_PID [--copies] [--unflushed]`, with a stream socket
as standard input. The server's process id is passed on, since a server that dies at once leaves its children
to process 1. It exists because every engine call holds the interpreter lock. It ends when the other end of
the socket closes, which also happens when the server is killed; Ctrl-C and SIGTERM reach the whole process
group and are the server's to decide, so they are ignored here. Imports stay few: it must start in a moment.

With `--copies` it is a second one, for a folder in which collections are copied: it gives way to others, and
what it was not asked to release is worth nothing and is not closed. With `--unflushed` it keeps no journal.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from services.adapters.edge import journal, wire
from services.adapters.edge.collection import Refusal, refusal_from, release_mapped_files
from services.adapters.edge.shards import Shards
from services.store.durable import LOCK_FILE, Holder, holder_since_now, read_holder, try_lock, write_holder

_LOCK_WAIT_S = 1.0
_ORPHAN_WAIT_S = 20.0
_LOCK_RETRY_S = 0.02
_RECEIVE_BYTES = 1 << 18
_FLUSH_WHEN_IDLE_S = 1.0
_POLITENESS = 5


def lock_folder(folder: Path, server_pid: int) -> int:
    """Lock `folder` for this process's life, on behalf of that server; returns the descriptor that holds it.

    Waits a second. When the holder's server is gone the holder is closing its shards, maybe after a long
    compaction, and is worth a longer wait. Raises Refusal(LOCKED), OSError.
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
    """An unknown holder (0) counts as alive: the short wait is for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(folder: Path, server_pid: int, *, copies: bool = False, unflushed: bool = False) -> int:
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    os.umask(0o077)  # the engine makes its files for everybody otherwise
    if copies:
        os.nice(_POLITENESS)
    connection = socket.socket(fileno=0)
    shards = Shards(folder)
    try:
        if not copies:  # whose folder is made by the server, and gone when that is gone
            _make(folder)
        _open(folder, server_pid, shards, with_journal=not (copies or unflushed))
    except Refusal as refusal:
        with suppress(ConnectionError):
            _send(connection, str(refusal).encode(), refusal.verdict)
        return 1
    try:
        _send(connection, b"")
        _serve(connection, shards)
    except ConnectionError:
        pass  # the server is gone, nobody waits for an answer
    finally:
        if not copies:
            shards.close()
    return 0


def _make(folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from None


def _open(folder: Path, server_pid: int, shards: Shards, *, with_journal: bool) -> None:
    try:
        lock_folder(folder, server_pid)
        _close_to_others(folder)
        shards.open_all()
        if with_journal:
            shards.replay(journal.Journal(folder))
        else:
            journal.remove(folder)
        release_mapped_files(folder)
    except OSError as error:
        raise _unusable(folder, error) from None
    except sqlite3.Error as error:
        sentence = f"{folder / journal.FILE} cannot be read ({error}): put the folder back from a backup"
        raise Refusal(wire.Verdict.UNREADABLE, sentence) from None


def _close_to_others(folder: Path) -> None:
    """What a version before has made: its files could be read by everybody who may enter the folder."""
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
    """Changes that came together share a flush; each is answered once it is on the disk."""
    decoder = msgspec.msgpack.Decoder(wire.Request)
    pending = bytearray()
    held: list[bytes] = []
    while _receive(connection, pending, shards):
        while (body := _take_frame(pending)) is not None:
            uncommitted = shards.uncommitted
            held.append(wire.frame(*_answer(shards, decoder, body)))
            if shards.uncommitted == uncommitted:  # no change: who reads does not wait for the changes behind
                _send_committed(connection, shards, held)
        _send_committed(connection, shards, held)


def _send_committed(connection: socket.socket, shards: Shards, held: list[bytes]) -> None:
    """Replies, once all that they answer is on the disk; refusals, when it cannot be written."""
    if not held:
        return
    try:
        shards.commit()
    except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
        refusal = refusal_from(error)
        refused = wire.frame(shards.without_path(refusal).encode(), refusal.verdict)
        held[:] = [refused] * len(held)
    connection.sendall(b"".join(held))
    held.clear()


def _receive(connection: socket.socket, pending: bytearray, shards: Shards) -> bool:
    """Add what has arrived to `pending`; False at the end. Unflushed writes are flushed when it is quiet."""
    if shards.unflushed and not select.select([connection], [], [], _FLUSH_WHEN_IDLE_S)[0]:
        _flush(shards)
    received = connection.recv(_RECEIVE_BYTES)
    pending += received
    return bool(received)


def _flush(shards: Shards) -> None:
    """A flush that fails loses nothing, the log has it; it is tried again after the next write."""
    try:
        shards.flush()
        shards.hold_reserve()
    except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
        shards.unflushed = False
        print(f"store: flushing failed: {error}", file=sys.stderr)  # noqa: T201


def _take_frame(pending: bytearray) -> bytes | None:
    """Remove and return the first frame's body, None while it is not there in full."""
    if len(pending) < wire.HEADER.size:
        return None
    size, _ = wire.HEADER.unpack_from(pending)
    end = wire.HEADER.size + size
    if len(pending) < end:
        return None
    body = bytes(pending[wire.HEADER.size : end])
    del pending[:end]
    return body


def _answer(
    shards: Shards, decoder: msgspec.msgpack.Decoder[wire.Request], body: bytes
) -> tuple[bytes, wire.Verdict]:
    try:
        return wire.encode(shards.answer(decoder.decode(body))), wire.Verdict.OK
    except Refusal as refusal:
        return shards.without_path(refusal).encode(), refusal.verdict
    except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
        translated = refusal_from(error)
        return shards.without_path(translated).encode(), translated.verdict


def _send(connection: socket.socket, body: bytes, verdict: wire.Verdict = wire.Verdict.OK) -> None:
    connection.sendall(wire.frame(body, verdict))


if __name__ == "__main__":
    flags = sys.argv[3:]
    copying, unflushing = wire.COPIES_FLAG in flags, wire.UNFLUSHED_FLAG in flags
    sys.exit(main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), copies=copying, unflushed=unflushing))
