"""Documents that are known × files that are there → what is to be done. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.knowledge import Document, DocumentStatus
from services.sync.scanner import Scan, ScannedFile

MANY_KNOWN = 20
UNSETTLED_US = 0  # noted as a file's time where its content is to be tried again


@dataclass(frozen=True, slots=True)
class ExpectedDocument:
    """What the source's settings say its documents are like."""

    owner: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToRead:
    """A file to be read; `known` is its document so far."""

    file: ScannedFile
    known: Document | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that could not be read and has not changed since."""

    file: ScannedFile
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`to_read` has the small ones first.

    Of the documents whose files are gone, `moved` may be under another name now: some new file has their
    size. They wait until the new files are read. `known` counts all documents of the source.
    """

    to_read: tuple[ToRead, ...] = ()
    unchanged: int = 0
    refused: tuple[Refused, ...] = ()
    deleted: tuple[Document, ...] = ()
    moved: tuple[Document, ...] = ()
    known: int = 0


def make_plan(documents: Iterable[Document], scan: Scan, expected: ExpectedDocument) -> Plan:
    """What brings the documents of one source in line with its files."""
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
    lost = _lost(known, scan)
    return Plan(
        to_read=tuple(sorted(to_read, key=lambda task: task.file.size_bytes)),
        unchanged=len(scan.files) - len(to_read) - len(refused),
        refused=tuple(refused),
        deleted=tuple(document for document in lost if document.size_bytes not in new_sizes),
        moved=tuple(document for document in lost if document.size_bytes in new_sizes),
        known=len(known),
    )


def is_settled(document: Document, file: ScannedFile, expected: ExpectedDocument) -> bool:
    """Whether all that can be known of the file's present content is known.

    A failure without a content hash is one that may pass: it is tried again.
    """
    if document.modified_us != file.modified_us or document.owner != expected.owner:
        return False
    if document.refused_hash:  # all else is the older version's, that is searched
        return True
    if document.status is DocumentStatus.FAILED and not document.content_hash:
        return False
    return document.size_bytes == file.size_bytes and document.tags == expected.tags


def too_many_missing(deleted: int, known: int) -> bool:
    """More than half of what is known, and that is not just a few: rather an accident than a wish."""
    return known >= MANY_KNOWN and 2 * deleted > known


def _key(document: Document) -> str:
    return document.external_id or document.document_id


def _lost(documents: Iterable[Document], scan: Scan) -> list[Document]:
    """Neither seen nor unseen: of what cannot be looked at nobody knows that it is gone."""
    scanned = {file.external_id for file in scan.files} | {bad.external_id for bad in scan.bad}
    return [
        document
        for document in documents
        if _key(document) not in scanned and not _key(document).startswith(scan.unseen)
    ]
