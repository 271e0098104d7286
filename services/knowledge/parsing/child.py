"""The process that reads documents, or images: one after the other, and able to do nothing else.

`python -P -m services.knowledge.parsing.child PACKAGE…`, with nothing in its environment but where Python
looks for modules. Requests come on standard input, replies go to standard output, each as its length (8
bytes) and its body. The first request is pickled: the work, and its limits. Replies never are:
whoever reads them trusts nothing in them. It confines itself before it imports anything that knows a file
format, since that starts threads. It ends when its standard input does.
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
# What a bomb has taken is not all given back: the next file gets a process that has its memory still.
SPENT_SHARE = 0.4
SPENT_S = 0.05


def main(packages: list[str]) -> None:
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what a library prints is no reply
        os.dup2(null, stream)
    memory = _open_memory()
    defer_packages()
    missing = confine_this_process(tuple(ROOT / name for name in packages))
    work, limits = pickle.loads(_receive(requests))  # noqa: S301 - from the server
    _send(replies, Ready(list(missing)))
    while body := _receive(requests):
        request = msgspec.msgpack.decode(body, type=Request)
        own = limits.of(len(request.content))
        # Should the server die while this process hangs, nobody else would end it.
        end_this_process_after(own.wall_s + 1)
        limit_this_process(own.cpu_s, own.memory_bytes)
        began = _cpu_s()
        reply = answer(work, request)
        reply.cpu_s = _cpu_s() - began
        _send(replies, reply)
        spent = _peak_memory_bytes(memory) > limits.memory_bytes * SPENT_SHARE
        end_this_process_after(SPENT_S if spent else limits.idle_s)


def read_and_cut(parse: ParseDocument, splitter: TransformComponent, request: Request) -> Reply:
    from services.knowledge.chunking.splitter import cut  # starts threads: not before the walls stand

    parsed = parse(request.file_name, request.content)
    pieces = Pieces.pack(cut(parsed, splitter), parsed.date)
    return Reply(count=len(pieces), packs=list(pieces.packs), date=pieces.date)


def answer(work: Work, request: Request) -> Reply:
    """What went wrong travels back in words."""
    try:
        return work(request)
    except MemoryError:
        return _refusal(too_complex("takes too much memory to read"))
    except RecursionError:
        return _refusal(too_complex("is nested too deeply to read"))
    except BadRequestError as error:
        return _refusal(error)
    except OSError as error:  # of this process, not of the file: no reader lets its own go
        return _refusal(UnavailableError(f"The process that reads files failed: {type(error).__name__}."))
    except Exception as error:  # noqa: BLE001 - the server logs it: where it was, for its words may quote
        return Reply(CRASHED, message=f"{type(error).__name__} at {'; '.join(where(error))}")


def _refusal(error: BadRequestError | UnavailableError) -> Reply:
    return Reply(type(error).__name__, error.code, str(error))


def _receive(requests: BinaryIO) -> bytes:
    """Empty at the end."""
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
    """From now on; again for every file. The memory counts all that the process has mapped."""
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(_cpu_s()) + cpu_s, hardest))
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hardest))


def _open_memory() -> int:
    """To be opened before the process is confined; -1 where the system has no such file."""
    return os.open("/proc/self/status", os.O_RDONLY) if sys.platform == "linux" else -1


def _peak_memory_bytes(memory: int) -> int:
    """The most that was resident since the process began.

    On Linux not `ru_maxrss`: a new process begins with what the one that started it had resident.
    """
    if memory < 0:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = os.pread(memory, 1 << 14, 0).decode("ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1_024


def end_this_process_after(seconds: float) -> None:
    """Replaces the deadline set before. The signal's default action ends the process."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
