"""What a caller hands in, and the checks it passes before anything is parsed."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from dataclasses import dataclass, replace

from core.errors import BadRequestError, EmptyFileError
from core.iso_dates import is_iso_date
from core.knowledge import Document
from services.knowledge.formats import format_of
from services.knowledge.names import base_name

MAX_TAGS = 32
MAX_TAG_CHARS = 64
MAX_EXTERNAL_ID_CHARS = 256
_DOCUMENTS = uuid.UUID("8f1b2c36-9d5e-5f0a-9a53-6d1f7a0e2b41")


@dataclass(frozen=True, slots=True)
class Upload:
    """`file_name` may be a path of any style; `date` is YYYY, YYYY-MM or YYYY-MM-DD.

    Without a date it gets the one that the document itself bears.
    """

    owner: str
    file_name: str
    content: bytes
    external_id: str | None = None
    tags: tuple[str, ...] = ()
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Addition:
    """`job_id` is None when nothing is left to do: the document was there before."""

    document: Document
    job_id: str | None
    existing: bool


def checked(upload: Upload) -> Upload:
    """With its base name and without blank tags.

    Raises EmptyFileError, UnsupportedMediaError, or BadRequestError naming the field.
    """
    file_name = base_name(upload.file_name)
    tags = tuple(dict.fromkeys(tag.strip() for tag in upload.tags if tag.strip()))
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise BadRequestError(f"tags: at most {MAX_TAGS}, of at most {MAX_TAG_CHARS} characters each.")
    if upload.external_id is not None and not 0 < len(upload.external_id) <= MAX_EXTERNAL_ID_CHARS:
        raise BadRequestError(f"external_id: 1 to {MAX_EXTERNAL_ID_CHARS} characters.")
    _check_date(upload.date)
    if not upload.content:
        raise EmptyFileError("file: the file is empty.")
    format_of(file_name)
    return replace(upload, file_name=file_name, tags=tags)


def _check_date(value: str | None) -> None:
    if value is not None and not is_iso_date(value):
        raise BadRequestError("date: must be a day, a month or a year, like 2026-01-31, 2026-01 or 2026.")


async def content_hash(content: bytes) -> str:
    """SHA-256 in hex, off the event loop."""
    return await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())


def document_id_of(owner: str, hash_hex: str) -> str:
    """The same bytes of the same owner are the same document, however often they are sent."""
    return str(uuid.uuid5(_DOCUMENTS, f"{owner}\0{hash_hex}"))


def chunk_id_of(document_id: str, position: int) -> str:
    return str(uuid.uuid5(uuid.UUID(document_id), str(position)))
