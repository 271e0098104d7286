"""Collects a document's blocks under their headings, for every reader whose format has headings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from llama_index.core.schema import Document


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

    def heading(self, level: int, title: str) -> None:
        """A heading closes the section before it; `level` counts from 1, the outermost."""
        if not title:
            return
        if self._path and level > self._path[-1][0]:
            self._unsaid = False  # a heading under a heading: the path will say it
        self._close()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, title))
        self._unsaid = True

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
        if self._blocks:
            titles = [title for _, title in self._path]
            self._documents.append(section_document("\n\n".join(self._blocks), titles))
        self._blocks = []


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is its header, short rows are filled up."""
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
