"""The child process that parses documents or images, one at a time, and can do nothing else.

`python -P -m services.knowledge.parsing.child PACKAGE…`, with only Python's module path in its environment.
Requests arrive on standard input, replies go to standard output, each as its length (8 bytes) and its body.
The first request is pickled: the work and its limits. Replies never are, since their reader trusts nothing in
them. It confines itself before it imports any parser, since these start threads, and ends when its standard
input does.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from config.deferred import defer_packages
from core.errors import BadRequestError, UnavailableError, where
from services.knowledge.parsing.confinement import confine_this_process
from services.knowledge.parsing.pieces import (
    CRASHED,
    LENGTH_BYTES,
    ParseDocument,
    Pieces,
    Ready,
    Reply,
    Request,
    Work,
    too_complex,
)

if TYPE_CHECKING:
    from llama_index.core.schema import TransformComponent

ROOT = Path(__file__).parents[3]
# Memory taken by a decompression bomb is not fully returned: the next file gets a fresh process.
SPENT_SHARE = 0.4
SPENT_S = 0.05


def main(packages: list[str]) -> None:
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a library's output must not be read as a reply
        os.dup2(null, stream)
    memory = _open_memory()
    defer_packages()
    missing = confine_this_process(tuple(ROOT / name for name in packages))
    work, limits = pickle.loads(_receive(requests))  # noqa: S301 - from the server
    _send(replies, Ready(list(missing)))
    while body := _receive(requests):
        request = msgspec.msgpack.decode(body, type=Request)
        own = limits.of(len(request.content))
        # If the server dies while this process hangs, nothing else would end it.
        end_this_process_after(own.wall_s + 1)
        limit_this_process(own.cpu_s, own.memory_bytes)
        began = _cpu_s()
        reply = answer(work, request)
        reply.cpu_s = _cpu_s() - began
        _send(replies, reply)
        spent = _peak_memory_bytes(memory) > limits.memory_bytes * SPENT_SHARE
        end_this_process_after(SPENT_S if spent else limits.idle_s)


def read_and_cut(parse: ParseDocument, splitter: TransformComponent, request: Request) -> Reply:
    from services.knowledge.chunking.splitter import cut  # starts threads: only after confinement

    parsed = parse(request.file_name, request.content, request.scans)
    pieces = Pieces.pack(cut(parsed, splitter), parsed.date)
    scanned = list(parsed.scanned)
    return Reply(count=len(pieces), packs=list(pieces.packs), date=pieces.date, scanned=scanned)


def answer(work: Work, request: Request) -> Reply:
    """Do the work; errors are returned as replies."""
    try:
        return work(request)
    except MemoryError:
        return _refusal(too_complex("takes too much memory to read"))
    except RecursionError:
        return _refusal(too_complex("is nested too deeply to read"))
    except BadRequestError as error:
        return _refusal(error)
    except OSError as error:  # from this process, not the file: readers translate their own
        return _refusal(UnavailableError(f"The process that reads files failed: {type(error).__name__}."))
    except Exception as error:  # noqa: BLE001 - logged by the server; the location only, a message may quote
        return Reply(CRASHED, message=f"{type(error).__name__} at {'; '.join(where(error))}")


def _refusal(error: BadRequestError | UnavailableError) -> Reply:
    return Reply(type(error).__name__, error.code, str(error))


def _receive(requests: BinaryIO) -> bytes:
    """Return the next request's body, empty at the end of input."""
    length = int.from_bytes(requests.read(LENGTH_BYTES), "big")
    return requests.read(length)


def _send(replies: BinaryIO, reply: Ready | Reply) -> None:
    body = msgspec.msgpack.encode(reply)
    replies.write(len(body).to_bytes(LENGTH_BYTES, "big"))
    replies.write(body)
    replies.flush()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def limit_this_process(cpu_s: int, memory_bytes: int) -> None:
    """Set the limits for the next file. The memory limit covers everything the process has mapped."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(_cpu_s()) + cpu_s, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))


def _open_memory() -> int:
    """Open /proc/self/status, which must happen before confinement; -1 if there is no such file."""
    return os.open("/proc/self/status", os.O_RDONLY) if sys.platform == "linux" else -1


def _peak_memory_bytes(memory: int) -> int:
    """Return the process's peak resident memory.

    On Linux not `ru_maxrss`, which a new process inherits from the one that started it.
    """
    if memory < 0:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = os.pread(memory, 1 << 14, 0).decode("ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1_024


def end_this_process_after(seconds: float) -> None:
    """Set a deadline, replacing the previous one. The signal's default action ends the process."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
