"""Documents, their chunks and tags, and their ingestion jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from core.knowledge import MAX_EXTERNAL_ID_CHARS, MAX_TAG_CHARS, MAX_TAGS, DocumentStatus
from routes.wire.erasure import PROOF, RECEIPT_ID, Proof
from routes.wire.fields import AtMost, MaybeMoment, Moment, PlainText, Reply, WireModel, example
from routes.wire.turns import CHUNK_ID, DOCUMENT_ID

JOB_ID = "0a6f7d3e-2b1c-4d5e-8f90-1a2b3c4d5e6f"

Tag = Annotated[PlainText, AtMost(MAX_TAG_CHARS)]
JobStage = Literal[
    "waiting", "parsing", "embedding", "storing", "verifying", "retrying", "done", "failed", "cancelled"
]

_DOCUMENT = {
    "document_id": DOCUMENT_ID,
    "file_name": "guide.md",
    "content_hash": "9f2c0d6be2f3f8b7",
    "size_bytes": 20480,
    "status": "ready",
    "chunk_count": 41,
    "unread_pages": 0,
    "external_id": None,
    "tags": ["manual"],
    "date": "2026-01",
    "error": None,
    "source": "",
    "created_at": "2026-01-31T09:30:00.000000Z",
    "modified_at": None,
    "shared": False,
    "sample": False,
}
CHUNK: dict[str, Any] = {
    "chunk_id": CHUNK_ID,
    "document_id": DOCUMENT_ID,
    "file_name": "guide.md",
    "text": "Each turn names its parent. A session is a tree.",
    "position": 3,
    "heading": "Parents and children",
    "page": None,
    "char_start": 120,
    "char_end": 168,
    "date": "2026-01",
    "version": "9f2c",
    "tags": ["manual"],
    "source": "",
}
_JOB = {
    "job_id": JOB_ID,
    "document_id": DOCUMENT_ID,
    "file_name": "guide.md",
    "stage": "embedding",
    "done": 12,
    "total": 41,
    "error": None,
    "error_code": None,
    "retryable": False,
    "attempt": 1,
    "reused": 0,
    "started_at": "2026-01-31T09:30:00.000000Z",
    "next_try_at": None,
    "ended_at": None,
    "external_id": None,
    "source": "",
    "sample": False,
}


class Document(Reply):
    """One file. While a new version is being ingested, all fields describe the version that is searched."""

    model_config = example(_DOCUMENT)

    document_id: str = Field(description="The document's id.")
    file_name: str = Field(description="The file's name.")
    content_hash: str = Field(description="SHA-256 of the file, in hex.")
    size_bytes: int = Field(description="The file's size in bytes.")
    status: DocumentStatus = Field(description="ingesting, ready (searchable), or failed.")
    chunk_count: int = Field(description="The number of chunks.")
    unread_pages: int = Field(
        description="How many pages without readable text were left out: scans, if text recognition is not "
        "installed, and damaged pages."
    )
    external_id: str | None = Field(
        description="The caller's own id; different content with the same id is a new version."
    )
    tags: list[str] = Field(description="The document's tags.")
    date: str | None = Field(description="The document's date: a day, a month or a year; null for none.")
    error: str | None = Field(description="Why the document, or its newer version, could not be read.")
    source: str = Field(description='The followed folder that contains it; "" for an upload.')
    created_at: Moment = Field(description="When the document was added.")
    modified_at: MaybeMoment = Field(description="When the followed file was last changed.")
    shared: bool = Field(description="Whether all owners can read the document.")
    sample: bool = Field(description="Whether the document is part of Wenmai's sample guide.")


class DocumentPage(Reply):
    """A page of documents."""

    model_config = example({"documents": [_DOCUMENT], "next": None})

    documents: list[Document] = Field(description="The documents, newest first.")
    next: str | None = Field(description="`cursor` of the next page; null: this is the last one.")


class AddedDocument(Reply):
    """A document that was sent, and its ingestion job."""

    model_config = example(
        {"document": {**_DOCUMENT, "status": "ingesting"}, "job_id": JOB_ID, "existing": False}
    )

    document: Document = Field(description="The document.")
    job_id: str | None = Field(description="The ingestion job; null if there is nothing to ingest.")
    existing: bool = Field(
        description="true: the same content was already stored, and need not be read again."
    )


class ErasedDocument(Reply):
    """A document that was erased."""

    model_config = example(
        {"document_id": DOCUMENT_ID, "deleted": True, "source": None, "proof": None, "receipt_id": ""}
    )

    document_id: str = Field(description="The document's id.")
    deleted: bool = Field(description="Always true.")
    source: str | None = Field(description="The followed folder that will restore it; null for an upload.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class RemovedSample(Reply):
    """Wenmai's sample guide, removed: later starts do not load it again."""

    model_config = example({"documents": 20, "chunks": 410, "left": 0})

    documents: int = Field(description="How many documents were erased; 0 if there were none.")
    chunks: int = Field(description="How many chunks these documents had.")
    left: int = Field(description="How many traces of them were still stored afterwards, backups aside.")


class DocumentPatch(WireModel):
    """The request body of PATCH /documents/{id}; absent fields stay as they are."""

    model_config = example({"tags": ["manual"], "date": "2026-01"})

    tags: list[Tag] | None = Field(None, max_length=MAX_TAGS, description="The new tags, replacing the old.")
    date: Annotated[PlainText, AtMost(10)] | None = Field(
        None, description="The new date: YYYY, YYYY-MM or YYYY-MM-DD; null: none."
    )


class DocumentUpload(WireModel):
    """The form of POST /documents."""

    file: Annotated[bytes, Field(json_schema_extra={"format": "binary"})] = Field(
        description="The file, with its name."
    )
    external_id: str = Field(
        "",
        max_length=MAX_EXTERNAL_ID_CHARS,
        description="The caller's own id; different content with the same id is a new version.",
    )
    tags: str = Field(
        "",
        description="Tags: comma-separated, one field each, or a JSON array; absent: unchanged; empty: none.",
    )
    date: str = Field("", description="Date: YYYY, YYYY-MM or YYYY-MM-DD; absent: the document's own.")


class TagCount(Reply):
    """A tag, and how often it is used."""

    tag: str = Field(description="The tag's name.")
    documents: int = Field(description="How many documents have this tag.")


class TagList(Reply):
    """The tags that most documents have."""

    model_config = example({"tags": [{"tag": "manual", "documents": 3}]})

    tags: list[TagCount] = Field(description="The tags, most frequent first, at most 200.")


class Chunk(Reply):
    """A piece of a document as it is indexed."""

    model_config = example(CHUNK)

    chunk_id: str = Field(description="The chunk's id.")
    document_id: str = Field(description="The id of the chunk's document.")
    file_name: str = Field(description="The document's name.")
    text: str = Field(description="The chunk's text.")
    position: int = Field(description="The chunk's position in the document, from 0.")
    heading: str = Field(description="The headings above the chunk, outermost first.")
    page: int | None = Field(description="The chunk's first page, from 1; null if there are no pages.")
    char_start: int = Field(description="The chunk's start in the document's text, in characters.")
    char_end: int = Field(description="The chunk's end in the document's text.")
    date: str = Field(description='The document\'s date; "" for none.')
    version: str = Field(description="The version of the document's content.")
    tags: list[str] = Field(description="The document's tags.")
    source: str = Field(description='The document\'s followed folder; "" for an upload.')


class ChunkPage(Reply):
    """A page of a document's chunks."""

    model_config = example({"chunks": [CHUNK], "next": None})

    chunks: list[Chunk] = Field(description="The chunks, in document order.")
    next: str | None = Field(description="`cursor` of the next page; null: this is the last one.")


class Neighbours(Reply):
    """The chunks around another one, in document order."""

    before: list[Chunk] = Field(description="The chunks before it.")
    after: list[Chunk] = Field(description="The chunks after it.")


class ChunkInPlace(Chunk):
    """A chunk in its context."""

    model_config = example({**CHUNK, "neighbours": {"before": [], "after": []}, "section": []})

    neighbours: Neighbours = Field(description="The chunks around it.")
    section: list[Chunk] = Field(description="The chunks under the same heading, including this one.")


class Job(Reply):
    """The progress of a document's ingestion."""

    model_config = example(_JOB)

    job_id: str = Field(description="The job's id.")
    document_id: str = Field(description="The id of the document being ingested.")
    file_name: str = Field(description="The document's name.")
    stage: JobStage = Field(description="The job's stage; done, failed and cancelled are final.")
    done: int = Field(description="Chunks embedded and stored so far.")
    total: int = Field(description="Chunks in total.")
    error: str | None = Field(description="What went wrong in the last attempt, in one sentence.")
    error_code: str | None = Field(description="The kind of error, for programs.")
    retryable: bool = Field(description="Whether a retry may succeed.")
    attempt: int = Field(description="The number of the attempt, from 1.")
    reused: int = Field(description="Chunks whose stored vectors were reused.")
    started_at: MaybeMoment = Field(description="When the job began.")
    next_try_at: MaybeMoment = Field(description="When the job is retried.")
    ended_at: MaybeMoment = Field(description="When the job ended.")
    external_id: str | None = Field(description="The document's id in its source, such as a path.")
    source: str = Field(description='The document\'s followed folder; "" for an upload.')
    sample: bool = Field(description="Whether the document is part of Wenmai's sample guide.")


class JobList(Reply):
    """The jobs that are waiting, running, or recently ended."""

    model_config = example({"jobs": [_JOB]})

    jobs: list[Job] = Field(description="The jobs, newest first.")


class Source(Reply):
    """A followed folder."""

    source: str = Field(description="The folder's name in the configuration.")
    documents: int = Field(description="How many of the folder's documents you may read.")
    synced_at: MaybeMoment = Field(description="When the folder was last synced; null: not yet.")


class SourceList(Reply):
    """The followed folders."""

    model_config = example(
        {"sources": [{"source": "notes", "documents": 12, "synced_at": "2026-01-31T03:00:00.000000Z"}]}
    )

    sources: list[Source] = Field(description="The folders whose documents you may read.")
