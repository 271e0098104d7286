"""How much is under way at once, and how long what is away is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.errors import UnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncPace:
    """`documents` are read, parsed or embedded at once, with at most `content_bytes` of files in memory (one
    file that is larger has it alone). What is away is tried again after each of `pauses_s`. A file is read
    when it has been left alone for `settle_s`: clocks of file systems are that coarse.
    """

    documents: int = 8
    content_bytes: int = 64 << 20
    pauses_s: Sequence[float] = (1, 2, 4, 8, 15)
    settle_s: float = 1.0


class Patience:
    """One for a whole run: what one file waited for in vain is not waited for again."""

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = pauses_s
        self._done = 0
        self.lost = ""
        """Why nothing more is tried; "" while it is."""

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Raises UnavailableError when all tries were in vain. Where others got through meanwhile it is this
        work's own fault, and patience is not lost."""
        done_before = self._done
        for pause_s in (*self._pauses_s, None):
            if self.lost:
                raise UnavailableError(self.lost)
            try:
                result = await work()
            except UnavailableError as error:
                if pause_s is None:
                    if self._done == done_before:
                        self.lose(str(error))
                    raise
                await asyncio.sleep(pause_s)
            else:
                self._done += 1
                return result
        raise AssertionError("the last try returns or raises")

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
