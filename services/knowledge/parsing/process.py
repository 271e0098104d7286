"""Parsing in a process of its own: a hostile or huge file costs that process, never the server."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_process
from llama_index.core.schema import TransformComponent

from core.errors import UnavailableError, UnreadableDocumentError
from core.knowledge import ParsedDocument
from services.knowledge.chunking.splitter import cut
from services.knowledge.parsing.pieces import Pieces

_OPEN_FILES = 64
_REFUSED = frozenset((
    "socket.connect", "socket.bind", "socket.listen", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "subprocess.Popen", "os.exec",
    "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
    "os.kill", "os.killpg", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree",
    "os.symlink", "os.link", "os.mkdir", "os.chmod", "os.chown", "webbrowser.open", "urllib.Request",
))  # fmt: skip


@cache
def confine_this_process() -> None:
    """For good: there is no way back, and a second call does nothing.

    A parser that is tricked into any of this gets a PermissionError; it is a second wall behind readers that
    fetch nothing, not a sandbox against code that runs already.
    """
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _, hardest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hardest), min(_OPEN_FILES, hardest)))


def limit_this_process(cpu_s: int, memory_bytes: int) -> None:
    """From now on; again for every file. The memory counts all that the process has mapped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used_s = int(usage.ru_utime + usage.ru_stime)
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used_s + cpu_s, hardest))
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hardest))


def peak_memory_bytes() -> int:
    """The most that was resident since the process began.

    On Linux not `ru_maxrss`: a new process begins with what the one that started it had resident.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1_024


def end_this_process_after(seconds: float) -> None:
    """Replaces the deadline set before. The signal's default action ends the process."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _REFUSED:
        raise PermissionError("A process that reads documents may not do this.")


ParseDocument = Callable[[str, bytes], ParsedDocument]
"""File name, content → document. Blocking; must be a top-level function, so that it can be sent over."""

PROCESSES = 2
SUDDEN_S = 0.5
# What a bomb has taken is not all given back: the next file gets a process that has its memory still.
SPENT_SHARE = 0.4
SPENT_S = 0.05


class DocumentParser(Protocol):
    async def __call__(self, file_name: str, content: bytes) -> Pieces:
        """Raises BadRequestError of the kind that fits, with its code."""
        ...


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """`idle_s`: a child that has had nothing to do for so long ends, and its memory is free again."""

    wall_s: float = 60
    cpu_s: int = 30
    memory_bytes: int = 1 << 30
    idle_s: float = 60


class ParserProcess:
    """Parses and cuts in a child, two at a time; a child that exceeds a limit is killed and replaced."""

    def __init__(
        self, parse: ParseDocument, splitter: TransformComponent, limits: ParseLimits | None = None
    ) -> None:
        self._parse = parse
        self._splitter = splitter
        self._limits = limits or ParseLimits()
        self._limiter = anyio.CapacityLimiter(PROCESSES)

    async def __call__(self, file_name: str, content: bytes) -> Pieces:
        async with self._limiter:  # waiting for a free process does not count against the time limit
            started = anyio.current_time()
            try:
                return await self._in_child(file_name, content)
            except anyio.BrokenWorkerProcess:
                if anyio.current_time() - started > SUDDEN_S:
                    raise _too_complex("takes too much time or memory to read") from None
            # An idle child may have ended at the very moment it was asked; that is not the file's fault.
            try:
                return await self._in_child(file_name, content)
            except anyio.BrokenWorkerProcess:
                raise _too_complex("takes too much time or memory to read") from None

    async def _in_child(self, file_name: str, content: bytes) -> Pieces:
        try:
            with anyio.fail_after(self._limits.wall_s):
                return await anyio.to_process.run_sync(
                    _parse_and_cut, self._parse, self._splitter, self._limits, file_name, content,
                    cancellable=True, limiter=anyio.CapacityLimiter(1),
                )  # fmt: skip
        except TimeoutError:
            raise _too_complex("takes too long to read") from None


def _too_complex(why: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(
        f"The file {why}: split it into smaller files and add those.", code="too_complex"
    )


def _parse_and_cut(
    parse: ParseDocument, splitter: TransformComponent, limits: ParseLimits, file_name: str, content: bytes
) -> Pieces:
    """Runs in the child; domain errors travel back with their code."""
    # Should the server die while this process hangs, nobody else would end it.
    end_this_process_after(limits.wall_s + 1)
    confine_this_process()
    limit_this_process(limits.cpu_s, limits.memory_bytes)
    try:
        parsed = parse(file_name, content)
        return Pieces.pack(cut(parsed, splitter), parsed.date)
    except MemoryError:
        raise _too_complex("takes too much memory to read") from None
    except RecursionError:
        raise _too_complex("is nested too deeply to read") from None
    except OSError as error:  # of this process, not of the file: no reader lets its own go
        raise UnavailableError(f"The process that reads files failed: {type(error).__name__}.") from None
    finally:
        spent = peak_memory_bytes() > limits.memory_bytes * SPENT_SHARE
        end_this_process_after(SPENT_S if spent else limits.idle_s)
