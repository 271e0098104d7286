"""Processes that read documents, and start in a moment: one that has imported what they need forks them."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import cast

from services.knowledge.parsing import process
from tests.support.warm.client import Forked, request_for

begin_started = process._begin
"""For what looks at the children of this process."""


class _ForkedParser:
    """What the server uses of an `asyncio.subprocess.Process`."""

    def __init__(self, forked: Forked, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._forked, self.stdin, self.stdout = forked, stdin, stdout

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    def kill(self) -> None:
        self._forked.kill()

    async def wait(self) -> int:
        """It was killed before."""
        self.stdin.close()
        return self._forked.wait(10)


async def begin_forked(packages: Sequence[str]) -> Process:
    """As `services.knowledge.parsing.process` begins one."""
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
