"""Plans a sync: compares known documents with existing files. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.formats import reading_of
from core.knowledge import Document, DocumentStatus, revision_of
from services.sync.scanner import Scan, ScannedFile

MANY_KNOWN = 20
UNSETTLED_US = 0  # stored as a file's time if its content is to be tried again


@dataclass(frozen=True, slots=True)
class ExpectedDocument:
    """Owner and tags that a source's documents should have, by its settings."""

    owner: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToRead:
    """A file to read; `known` is its present document, if any."""

    file: ScannedFile
    known: Document | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that could not be read and has not changed since."""

    file: ScannedFile
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`to_read` is sorted by size, smallest first.

    Files of `moved` documents are missing but may have been renamed: a new file has the same size. They are
    dealt with after the new files are read. `known` counts all documents of the source.
    """

    to_read: tuple[ToRead, ...] = ()
    unchanged: int = 0
    refused: tuple[Refused, ...] = ()
    deleted: tuple[Document, ...] = ()
    moved: tuple[Document, ...] = ()
    known: int = 0


def make_plan(documents: Iterable[Document], scan: Scan, expected: ExpectedDocument) -> Plan:
    """Plan how to bring the documents of one source in line with its files."""
    known = list(documents)
    by_name = {_key(document): document for document in known}
    to_read, refused = [], []
    for file in scan.files:
        document = by_name.get(file.external_id)
        if document is None or not is_settled(document, file, expected):
            to_read.append(ToRead(file, document))
        elif reason := document.error:
            refused.append(Refused(file, reason))
    new_sizes = {task.file.size_bytes for task in to_read if task.known is None}
    missing = _missing(known, scan)
    return Plan(
        to_read=tuple(sorted(to_read, key=lambda task: task.file.size_bytes)),
        unchanged=len(scan.files) - len(to_read) - len(refused),
        refused=tuple(refused),
        deleted=tuple(document for document in missing if document.size_bytes not in new_sizes),
        moved=tuple(document for document in missing if document.size_bytes in new_sizes),
        known=len(known),
    )


def is_settled(document: Document, file: ScannedFile, expected: ExpectedDocument) -> bool:
    """Whether the document reflects the file's present content, as far as possible.

    A failure without a content hash may be temporary, and is tried again.
    """
    if document.modified_us != file.modified_us or document.owner != expected.owner:
        return False
    if document.refused_hash:  # the other fields are of the older version, which is searched
        return document.refused_hash.endswith(revision_of("", reading_of(document.file_name)))
    if document.is_outdated or (document.status is DocumentStatus.FAILED and not document.content_hash):
        return False
    return document.size_bytes == file.size_bytes and document.tags == expected.tags


def too_many_missing(deleted: int, known: int) -> bool:
    """Whether more than half of the known documents would go, and not just a few: probably an accident."""
    return known >= MANY_KNOWN and 2 * deleted > known


def _key(document: Document) -> str:
    return document.external_id or document.document_id


def _missing(documents: Iterable[Document], scan: Scan) -> list[Document]:
    """Return documents whose files are gone; files in folders that could not be read may still exist."""
    scanned = {file.external_id for file in scan.files} | {bad.external_id for bad in scan.bad}
    return [
        document
        for document in documents
        if _key(document) not in scanned and not _key(document).startswith(scan.unseen)
    ]
