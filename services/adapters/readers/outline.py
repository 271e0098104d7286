"""Collects a document's blocks under their headings, for every reader whose format has headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from llama_index.core.schema import Document

from services.adapters.readers.tables import markdown_table

__all__ = ["Outline", "markdown_table", "section_document", "with_dates"]


def section_document(text: str, heading: Sequence[str] = (), page: int | None = None) -> Document:
    """One section as LlamaIndex carries it: heading path (outermost first) and page in the metadata."""
    return Document(text=text, metadata={"heading": list(heading), "page": page})


def with_dates(
    documents: list[Document], declared: Sequence[str] = (), saved: Sequence[datetime | None] = ()
) -> list[Document]:
    """The document's dates in its first section's metadata: as its format declares them, and when a program
    says it wrote the file."""
    if documents:
        known = [moment for moment in saved if moment is not None]
        documents[0].metadata.update(declared_dates=list(declared), saved=known)
    return documents


class Outline:
    """Feed it headings and blocks in document order; `finish()` gives one Document per section."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._blocks: list[str] = []
        self._documents: list[Document] = []
        self._unsaid = False  # the innermost heading has had nothing under it so far
        self._page: int | None = None

    def page(self, number: int) -> None:
        """What follows is on this page (or slide); the headings stay until others replace them."""
        self._close()
        self._unsaid = False
        self._page = number

    def heading(self, level: int, title: str, *, in_text: bool = False) -> None:
        """A heading closes the section before it; `level` counts from 1, the outermost.

        `in_text`: it stands in the text as well, so it need not become text when nothing follows.
        """
        if not title:
            return
        if self._path and level > self._path[-1][0]:
            self._unsaid = False  # a heading under a heading: the path will say it
        self._close()
        self.leave(level)
        self._path.append((level, title))
        self._unsaid = not in_text

    def leave(self, level: int) -> None:
        """What follows is under no heading of this level or a deeper one."""
        self._close()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()

    def block(self, text: str) -> None:
        if text.strip():
            self._blocks.append(text.strip("\n"))
            self._unsaid = False

    def finish(self) -> list[Document]:
        self._close()
        self._unsaid = False
        return self._documents

    def _close(self) -> None:
        if self._unsaid:
            self._blocks.append(self._path[-1][1])  # a heading with nothing under it is all there is
            self._unsaid = False
        if self._blocks:
            titles = [title for _, title in self._path]
            self._documents.append(section_document("\n\n".join(self._blocks), titles, self._page))
        self._blocks = []


# Code in a Markdown fence that nothing in the code can close.


_TICKS = re.compile(r"`{3,}")


def fenced(code: str, info: str = "") -> str:
    """`info` says what it is, after the opening fence."""
    longest = max(map(len, _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{code}\n{fence}"
