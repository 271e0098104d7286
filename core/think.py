"""Split a streamed answer into thinking and content, whatever the split of the stream.

Rules: an opening tag counts only while no content has begun (so a tag in the answer's own text or
code stays text); letter case is ignored; a closing tag that nothing opened is text; thinking that
is never closed is thinking to the end. The joined pieces and the recognised tags are the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

OPEN_TAG = "<think>"
CLOSE_TAG = "</think>"


@dataclass(frozen=True, slots=True)
class Piece:
    """A non-empty stretch of one kind."""

    text: str
    thinking: bool


class ThinkSplitter:
    """Feed deltas, get pieces; at most `len(CLOSE_TAG) - 1` characters are held back. Linear in the input."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False
        self._content_begun = False

    def feed(self, delta: str) -> Iterator[Piece]:
        """Yield the pieces that `delta` completes."""
        if self._content_begun:
            if delta:
                yield Piece(delta, thinking=False)
            return
        self._pending += delta
        while self._pending and not self._content_begun:
            before = (len(self._pending), self._inside)
            yield from self._thinking() if self._inside else self._before_content()
            if before == (len(self._pending), self._inside):
                return  # the rest may be the beginning of a tag

    def flush(self) -> Iterator[Piece]:
        """Yield what was held back, at the end of the stream."""
        if self._pending:
            yield Piece(self._pending, thinking=self._inside)
            self._pending = ""

    @property
    def unclosed(self) -> bool:
        """True when the stream has so far ended inside thinking."""
        return self._inside

    def _thinking(self) -> Iterator[Piece]:
        at = self._pending.lower().find(CLOSE_TAG)
        end = at if at >= 0 else len(self._pending) - _held_back(self._pending, CLOSE_TAG)
        if end:
            yield Piece(self._pending[:end], thinking=True)
        self._pending = self._pending[end + len(CLOSE_TAG) :] if at >= 0 else self._pending[end:]
        self._inside = at < 0

    def _before_content(self) -> Iterator[Piece]:
        blank = len(self._pending) - len(self._pending.lstrip())
        rest = self._pending[blank : blank + len(OPEN_TAG)].lower()
        if blank:
            yield Piece(self._pending[:blank], thinking=False)
            self._pending = self._pending[blank:]
        if rest == OPEN_TAG:
            self._pending = self._pending[len(OPEN_TAG) :]
            self._inside = True
        elif rest and not OPEN_TAG.startswith(rest):
            self._content_begun = True
            yield Piece(self._pending, thinking=False)
            self._pending = ""


def _held_back(text: str, tag: str) -> int:
    """Length of the longest end of `text` that could begin `tag`."""
    tail = text[-(len(tag) - 1) :].lower()
    return next((size for size in range(len(tail), 0, -1) if tag.startswith(tail[-size:])), 0)
