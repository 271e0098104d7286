"""Parsing in a separate process: a hostile or huge file can take down that process, never the server."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import structlog
from anyio.lowlevel import RunVar

from core.errors import (
    BadRequestError,
    EmptyFileError,
    UnavailableError,
    UnreadableDocumentError,
    UnsupportedMediaError,
    WenmaiError,
)
from services.knowledge.jobs.lanes import CpuHours, Shares
from services.knowledge.parsing.child import ROOT, read_and_cut
from services.knowledge.parsing.pieces import (
    CRASHED,
    LENGTH_BYTES,
    ParseDocument,
    ParseLimits,
    Pieces,
    Ready,
    Reply,
    Request,
    ScanPage,
    Scans,
    Work,
    too_complex,
)

if TYPE_CHECKING:
    from llama_index.core.schema import TransformComponent  # which takes a second to import

log = structlog.get_logger()

_CHILD = "services.knowledge.parsing.child"
_PACKAGES = ("core", "services", "config")
_PASSED_ENVIRONMENT = ("PYTHONHOME", "LD_LIBRARY_PATH")  # nothing else of the environment is passed on
PROCESSES = 3
PROCESSES_PER_OWNER = 2  # the cores of a small machine; the third process is left for another owner
START_S = 60.0
SUDDEN_S = 0.5  # a child that ends this soon after a request was about to end anyway
MAX_REPLY_BYTES = 1 << 29
PAGE_LIMITS = ParseLimits(wall_s=120, cpu_s=60, memory_bytes=4 << 30, idle_s=10, timed=1)
MAX_SCANNED_PAGES = 300  # about an hour of one core
A_SCAN = (
    "The file is a scan without text: run text recognition (OCR) on it and add that, or have the operator "
    "install it in Wenmai: pip install -e '.[ocr]'."
)
KILLED = "The process that reads files was ended from outside, perhaps for lack of memory; try again later."

_ERRORS: dict[str, type[WenmaiError]] = {
    kind.__name__: kind for kind in (BadRequestError, EmptyFileError, UnsupportedMediaError, UnavailableError)
}


class DocumentParser(Protocol):
    async def __call__(self, file_name: str, content: bytes, owner: str = "") -> Pieces:
        """Wait for the owner's turn. Raises the matching subclass of BadRequestError, with its code."""
        ...


class ConfinedWork:
    """Runs work in a child process, at most two requests per owner at a time; a child that exceeds a limit is
    killed and replaced. CPU time is charged to `cpu`. `packages` are those of ours that the work needs in
    addition to the usual ones."""

    def __init__(
        self,
        work: Work,
        limits: ParseLimits,
        cpu: CpuHours | None = None,
        packages: Collection[str] = (),
        processes: int = PROCESSES,
    ) -> None:
        self._limits = limits
        self._children = _Children(work, limits, packages)
        self._cpu = cpu or CpuHours()
        self._slots = Shares(processes, min(processes, PROCESSES_PER_OWNER))

    async def ask(self, request: Request, owner: str = "") -> Reply:
        """Wait for the owner's turn. Raises the error that the reply names, or RuntimeError if the work
        crashed."""
        body, own = msgspec.msgpack.encode(request), self._limits.of(len(request.content))
        # waiting for a free process does not count against the time limit
        async with self._slots.hold(owner, size_bytes=len(request.content)):
            began, reply = time.monotonic(), None
            try:
                reply = await self._ask(body, own.wall_s)
            finally:  # a killed child reports nothing: it may have been busy all the time
                taken_s = reply.cpu_s if reply else min(time.monotonic() - began, own.cpu_s)
                self._cpu.charge(owner, taken_s)
        _check(reply)
        return reply

    async def _ask(self, request: bytes, wall_s: float) -> Reply:
        began = time.monotonic()
        try:
            return await self._children.ask(request, wall_s)
        except ChildDiedError as died:
            # An idle child may have ended just as it was asked; that is not the file's fault.
            if not died.killed and time.monotonic() - began >= SUDDEN_S:
                raise _exhausted() from None
        try:
            return await self._children.ask(request, wall_s)
        except ChildDiedError as died:
            raise (UnavailableError(KILLED) if died.killed else _exhausted()) from None


def _exhausted() -> UnreadableDocumentError:
    return too_complex("takes too much time or memory to read")


class ParserProcess:
    """Parses and chunks documents in a confined child, with this parser and splitter. `recognise` reads a
    scanned page; without it, such pages are left out."""

    def __init__(
        self,
        parse: ParseDocument,
        splitter: TransformComponent,
        limits: ParseLimits | None = None,
        cpu: CpuHours | None = None,
        recognise: Work | None = None,
    ) -> None:
        named = (parse.__module__, type(splitter).__module__)
        packages = {name.partition(".")[0] for name in named}
        work = partial(read_and_cut, parse, splitter)
        self._confined = ConfinedWork(work, limits or ParseLimits(), cpu, packages)
        self._scans = ConfinedWork(recognise, PAGE_LIMITS, cpu, packages, processes=1) if recognise else None

    async def __call__(self, file_name: str, content: bytes, owner: str = "") -> Pieces:
        reply = await self._confined.ask(Request(file_name, content), owner)
        if reply.scanned and self._scans:
            scans = await self._recognised(self._scans, content, reply, owner)
            reply = await self._confined.ask(Request(file_name, content, scans), owner)
        if reply.scanned and not reply.count:
            raise UnreadableDocumentError(A_SCAN, code="no_text")
        return Pieces(reply.count, tuple(reply.packs), reply.date, len(reply.scanned))

    async def _recognised(self, confined: ConfinedWork, content: bytes, reply: Reply, owner: str) -> Scans:
        """Recognise page by page, so that each has its own limits, and other owners' pages come between. A
        damaged page is left out, unless the file has no other."""
        if len(reply.scanned) > MAX_SCANNED_PAGES:
            raise too_complex(f"has more than {MAX_SCANNED_PAGES} scanned pages")
        scans: Scans = {}
        for page in reply.scanned:
            try:
                scans[page] = (await confined.ask(Request(str(page), content), owner)).page or ScanPage()
            except UnreadableDocumentError as error:
                if error.code == "too_complex" or reply.count + len(reply.scanned) == 1:
                    raise
        return scans


def _check(reply: Reply) -> None:
    """Raise the error that the reply names; always one of ours, whatever the reply says."""
    if not reply.error:
        return
    if reply.error == UnreadableDocumentError.__name__:
        raise UnreadableDocumentError(reply.message, reply.code)
    if reply.error == CRASHED:
        log.error("parser_crashed", error=reply.message)
        raise RuntimeError("the reader of a document failed")
    raise _ERRORS.get(reply.error, BadRequestError)(reply.message)


class ChildDiedError(Exception):
    """The child ended, or sent an invalid reply. `killed`: it was ended from outside, by a signal that no
    limit of ours sends: an operator's, or the system's when memory is short."""

    def __init__(self, status: int | None = None) -> None:
        super().__init__()
        self.killed = status in (-signal.SIGKILL, -signal.SIGTERM)


class _Children:
    """A pool of children. Idle ones wait for the next request of any pool with the same work and limits; all
    end with the event loop."""

    def __init__(self, work: Work, limits: ParseLimits, packages: Collection[str]) -> None:
        self._first = pickle.dumps((work, limits))
        self._packages = sorted({*_PACKAGES, *packages})
        self._checked_walls = False

    async def ask(self, request: bytes, wall_s: float) -> Reply:
        """Raises ChildDiedError, or UnreadableDocumentError after `wall_s`. Cancelling the caller kills the
        child."""
        child = self._idle_one() or await self._start()
        try:
            async with asyncio.timeout(wall_s):
                reply = await _exchange(child, request, Reply)
        except TimeoutError:
            await self._kill(child)
            raise too_complex("takes too long to read") from None
        except BaseException:
            await self._kill(child)
            raise
        _of_this_loop().idle[self._first].append(child)
        return reply

    def _idle_one(self) -> Process | None:
        here = _of_this_loop()
        idle = here.idle[self._first]
        while idle:
            child = idle.pop()
            if child.returncode is None:
                return child
            here.children.discard(child)
        return None

    async def _start(self) -> Process:
        child = await _begin(self._packages)
        _of_this_loop().children.add(child)
        try:
            async with asyncio.timeout(START_S):
                ready = await _exchange(child, self._first, Ready)
        except (ChildDiedError, TimeoutError):
            await self._kill(child)
            raise UnavailableError("The process that reads files could not be started; try again.") from None
        except BaseException:
            await self._kill(child)
            raise
        self._note_walls(ready)
        return child

    def _note_walls(self, ready: Ready) -> None:
        if ready.missing_walls and not self._checked_walls:
            log.warning("parser_less_confined", missing=ready.missing_walls)
        self._checked_walls = True

    async def _kill(self, child: Process) -> None:
        _of_this_loop().children.discard(child)
        await _kill(child)


async def _begin(packages: Sequence[str]) -> Process:
    environment = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
    modules = [str(ROOT), *(entry for entry in sys.path if entry)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-B", "-m", _CHILD, *packages,
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
        env={**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(modules))},
    )  # fmt: skip


async def _kill(child: Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    await asyncio.shield(child.wait())


@dataclass(frozen=True, slots=True)
class _Keeper:
    """`idle` are children without work, by their first message. `task` kills all children when the event loop
    cancels it on closing."""

    children: set[Process]
    idle: defaultdict[bytes, list[Process]]
    task: asyncio.Task[None]


_KEEPER: RunVar[_Keeper] = RunVar("processes that read documents")


def _of_this_loop() -> _Keeper:
    try:
        return _KEEPER.get()
    except LookupError:
        children: set[Process] = set()
        keeper = _Keeper(children, defaultdict(list), asyncio.create_task(_end_with_the_loop(children)))
        _KEEPER.set(keeper)
        return keeper


async def _end_with_the_loop(children: set[Process]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        for child in tuple(children):
            await _kill(child)


R = TypeVar("R", Ready, Reply)


async def _exchange(child: Process, request: bytes, kind: type[R]) -> R:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(len(request).to_bytes(LENGTH_BYTES, "big"))
        child.stdin.write(request)
        await child.stdin.drain()
        length = int.from_bytes(await child.stdout.readexactly(LENGTH_BYTES), "big")
        if length > MAX_REPLY_BYTES:
            raise ChildDiedError
        return msgspec.msgpack.decode(await child.stdout.readexactly(length), type=kind)
    except (ConnectionError, asyncio.IncompleteReadError):
        raise ChildDiedError(await child.wait()) from None
    except msgspec.DecodeError:
        raise ChildDiedError from None
