"""A circuit that spares a server which keeps failing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Circuit:
    """Open for `recovery_s` after so many failures in a row; then one call is let through to see.

    Whoever calls says how it ended; a call that was cancelled says nothing of the server.
    """

    def __init__(self, failures: int, recovery_s: float) -> None:
        self._most = failures
        self._recovery_s = recovery_s
        self._failures = 0
        self._open_until = 0.0
        self._probing = False

    @property
    def is_closed(self) -> bool:
        return self._failures < self._most

    @property
    def is_open(self) -> bool:
        """Nobody is let through. Neither closed nor open: somebody may see whether the server is well."""
        return not self.is_closed and time.monotonic() < self._open_until

    @contextmanager
    def call(self) -> Iterator[bool]:
        """Whether the server may be asked in this block."""
        allowed = self.is_closed or not (self.is_open or self._probing)
        probe = allowed and not self.is_closed
        self._probing = self._probing or probe
        try:
            yield allowed
        finally:
            self._probing = self._probing and not probe

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1
        self._open_until = time.monotonic() + self._recovery_s
