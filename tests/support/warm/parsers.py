"""Document parser processes that start instantly: a process that has done their imports forks them."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import cast

from services.knowledge.parsing import process
from tests.support.warm.client import Forked, request_for

begin_started = process._begin
"""The original, for tests that inspect the children of this process."""


class _ForkedParser:
    """The part of `asyncio.subprocess.Process` that the server uses."""

    def __init__(self, forked: Forked, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._forked, self.stdin, self.stdout = forked, stdin, stdout

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    def kill(self) -> None:
        self._forked.kill()

    async def wait(self) -> int:
        """Wait for the end of the process, which has been killed before."""
        self.stdin.close()
        return self._forked.wait(10)


async def begin_forked(packages: Sequence[str]) -> Process:
    """Replaces the function by which `services.knowledge.parsing.process` begins a parser."""
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    out = f"/proc/{os.getpid()}/fd/{answer}"
    try:
        request = request_for(process._CHILD, packages, {}, out, os.devnull)
        forked = await asyncio.to_thread(Forked, request, ("tests.support.warm.readers",), (asked,))
    finally:
        os.close(asked)
        os.close(answer)
    loop, stdout = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(answered, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(ask, "wb", 0)
    )
    stdin = asyncio.StreamWriter(transport, protocol, None, loop)
    return cast("Process", _ForkedParser(forked, stdin, stdout))
