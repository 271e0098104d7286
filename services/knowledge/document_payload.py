"""A document as it is stored: the payload of one point of the document collection (id = document_id)."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import BaseModel, ConfigDict

from core.knowledge import Document, DocumentStatus


class DocumentPayload(BaseModel):
    """`updated_us` is the last sign of life of its ingestion, in UTC microseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    document_id: str
    owner: str
    file_name: str
    content_hash: str
    size_bytes: int
    created_us: int
    status: DocumentStatus
    chunk_count: int = 0
    external_id: str | None = None
    tags: tuple[str, ...] = ()
    date: str | None = None
    error: str | None = None
    source: str = ""
    modified_us: int = 0
    refused_hash: str = ""
    updated_us: int = 0

    @classmethod
    def from_document(cls, document: Document, updated_us: int) -> DocumentPayload:
        return cls(**asdict(document), updated_us=updated_us)

    def to_document(self) -> Document:
        return Document(**self.model_dump(exclude={"updated_us"}))
