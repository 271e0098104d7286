"""Parsing in a process of its own: a hostile or huge file costs that process, never the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
import anyio.to_process
from llama_index.core.schema import TransformComponent

from core.errors import UnavailableError, UnreadableDocumentError
from core.knowledge import ParsedDocument
from services.knowledge.chunking.splitter import cut
from services.knowledge.parsing.confinement import (
    confine_this_process,
    end_this_process_after,
    limit_this_process,
    peak_memory_bytes,
)
from services.knowledge.parsing.pieces import Pieces

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
