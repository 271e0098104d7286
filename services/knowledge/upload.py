"""The checks an upload must pass before it is parsed, and the identity of its document."""

from __future__ import annotations

import asyncio
import hashlib
import re
import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import replace

from core.dates import is_iso_date
from core.errors import BadRequestError, EmptyFileError
from core.formats import format_of
from core.knowledge import MAX_EXTERNAL_ID_CHARS, MAX_TAG_CHARS, MAX_TAGS, Changes, Document, Upload
from core.text import scrub
from services.knowledge.documents import DocumentStore

MAX_NAME_CHARS = 255
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)\s*(?:\.|$)", re.IGNORECASE
)
_UNPRINTABLE = frozenset(("Cc", "Zl", "Zp"))


def base_name(name: str) -> str:
    """Return the last part of any style of path, in NFC. Raises BadRequestError naming `file`.

    It is metadata only: displayed, never used as a path. Characters that reorder text are kept: the name must
    be displayed as inert text.
    """
    if any(unicodedata.category(char) in _UNPRINTABLE for char in name):
        raise BadRequestError("file: the name contains a control character.")
    last = re.split(r"[/\\]", name)[-1]
    last = unicodedata.normalize("NFC", scrub(re.sub(r"^[A-Za-z]:", "", last))).strip()
    if not last.strip(". "):
        raise BadRequestError("file: the name is missing.")
    if len(last) > MAX_NAME_CHARS:
        raise BadRequestError(f"file: the name is longer than {MAX_NAME_CHARS} characters.")
    if _RESERVED.match(last):
        raise BadRequestError("file: the name is reserved by some operating systems.")
    return last


VERSION_CHARS = 16  # of the content's hash
HASH_CHARS = 64
_DOCUMENTS_NAMESPACE = uuid.UUID("8f1b2c36-9d5e-5f0a-9a53-6d1f7a0e2b41")


def checked(upload: Upload) -> Upload:
    """Return the upload with its base name and without blank tags.

    Raises EmptyFileError, UnsupportedMediaError, or BadRequestError naming the field.
    """
    file_name = base_name(upload.file_name)
    tags = None if upload.tags is None else _checked_tags(upload.tags)
    if upload.external_id is not None and not 0 < len(upload.external_id) <= MAX_EXTERNAL_ID_CHARS:
        raise BadRequestError(f"external_id: 1 to {MAX_EXTERNAL_ID_CHARS} characters.")
    _check_date(upload.date)
    if not upload.content:
        raise EmptyFileError("file: the file is empty.")
    format_of(file_name)
    return replace(upload, file_name=file_name, tags=tags)


def checked_changes(changes: Changes) -> Changes:
    """Return the changes without blank tags. Raises BadRequestError naming the field."""
    _check_date(changes.date)
    return changes if changes.tags is None else replace(changes, tags=_checked_tags(changes.tags))


def _checked_tags(names: Sequence[str]) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(tag.strip() for tag in names if tag.strip()))
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise BadRequestError(f"tags: at most {MAX_TAGS}, of at most {MAX_TAG_CHARS} characters each.")
    return tags


def _check_date(value: str | None) -> None:
    if value is not None and not is_iso_date(value):
        raise BadRequestError("date: must be a day, a month or a year, like 2026-01-31, 2026-01 or 2026.")


async def content_hash(content: bytes) -> str:
    """Compute the SHA-256 in hex, off the event loop."""
    return await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())


def document_id_of(owner: str, hash_hex: str) -> str:
    """Return the id of a document without external id: the same bytes of one owner are one document."""
    return str(uuid.uuid5(_DOCUMENTS_NAMESPACE, f"{owner}\0{hash_hex}"))


def another_id_of(owner: str, hash_hex: str) -> str:
    """Return the id to use if that of `document_id_of` belongs to a document whose content has changed."""
    return str(uuid.uuid5(_DOCUMENTS_NAMESPACE, f"{owner}\0{hash_hex}\0again"))


def document_id_named(owner: str, external_id: str) -> str:
    """Return the id of a document with an external id, whatever its content."""
    return str(uuid.uuid5(_DOCUMENTS_NAMESPACE, f"{owner}\0external\0{external_id}"))


def version_of(revision: str) -> str:
    """Shorten a document's revision, which its chunks carry as their version."""
    return revision[:VERSION_CHARS] + revision[HASH_CHARS:]


def chunk_id_of(document_id: str, version: str, position: int) -> str:
    """Return the id of a new chunk; chunks of earlier releases have other ids."""
    return str(uuid.uuid5(uuid.UUID(document_id), f"{version}\0{position}"))


class Identity:
    """Determines which document an upload is: by its external id if it has one, else by its bytes."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def of(self, upload: Upload, hash_hex: str) -> str:
        """Return the document's id, whether it is stored or not. Raises StoreUnavailableError."""
        if upload.external_id is None:
            return await self._by_bytes(upload.owner, hash_hex)
        named = _candidates(await self._documents.named(upload.external_id), upload)
        if named:
            # earlier releases stored each content under an external id as a separate document
            best = max(named, key=lambda each: (each.content_hash == hash_hex, each.created_us))
            return best.document_id
        return document_id_named(upload.owner, upload.external_id)

    async def _by_bytes(self, owner: str, hash_hex: str) -> str:
        """A document of an earlier release, identified by its first content, may have changed since."""
        document_id = document_id_of(owner, hash_hex)
        stored = await self._documents.load(document_id)
        if stored is None or stored.document.external_id is None:
            return document_id
        is_it = stored.document.content_hash == hash_hex
        return document_id if is_it else another_id_of(owner, hash_hex)


def _candidates(named: Sequence[Document], upload: Upload) -> list[Document]:
    """Return those from the same followed folder, whoever owned them, else only the owner's."""
    of_source = [each for each in named if upload.source and each.source == upload.source]
    return of_source or [each for each in named if each.owner == upload.owner]
