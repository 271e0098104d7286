"""How many streams one key, and all callers together, may hold at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import TooManyStreamsError


class StreamSeats:
    """`per_owner` None: only the number in all is bounded (without keys every caller is the same owner)."""

    def __init__(self, limit: int, per_owner: int | None = None) -> None:
        self._limit = limit
        self._per_owner = per_owner
        self._owners: Counter[str] = Counter()
        self._taken = 0

    def check(self, owner: str) -> None:
        """Raises TooManyStreamsError when no seat is free."""
        if self._taken >= self._limit:
            raise TooManyStreamsError("Too many answers are being written just now. Try again shortly.")
        if self._per_owner is not None and self._owners[owner] >= self._per_owner:
            raise TooManyStreamsError(
                f"This key has {self._per_owner} answers open, as many as it may. Wait for one to end."
            )

    def take(self, owner: str) -> None:
        """The seat is the caller's until `give_back`, whether one was free or not: `check` before."""
        self._taken += 1
        self._owners[owner] += 1

    def give_back(self, owner: str) -> None:
        self._taken -= 1
        self._owners[owner] -= 1
        if self._owners[owner] <= 0:
            del self._owners[owner]

    @contextmanager
    def seat(self, owner: str) -> Iterator[None]:
        """Taken when entered."""
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)
