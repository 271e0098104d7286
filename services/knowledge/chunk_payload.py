"""A chunk as it is stored: the payload of one point of the knowledge collection (point id = chunk_id)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from core.iso_dates import first_day
from core.knowledge import Chunk


class ChunkPayload(BaseModel):
    """`ready` becomes true when the whole document is indexed; only ready chunks are searched.

    `created_us` is UTC microseconds; `day` is the first day of its date as a number, 20260131, 0 without
    one. Write with `model_dump()`, read with `model_validate(payload)`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    chunk_id: str
    document_id: str
    owner: str
    file_name: str
    text: str
    position: int
    heading: str = ""
    page: int | None = None
    char_start: int = 0
    char_end: int = 0
    ready: bool = False
    tags: tuple[str, ...] = ()
    created_us: int = 0
    date: str = ""
    version: str = ""
    source: str = ""
    day: int = 0

    @classmethod
    def from_chunk(
        cls,
        chunk: Chunk,
        owner: str,
        created_us: int,
        tags: Sequence[str] = (),
        ready: bool = False,
        source: str = "",
    ) -> ChunkPayload:
        return cls(
            chunk_id=chunk.chunk_id,
            document_id=chunk.document_id,
            owner=owner,
            file_name=chunk.file_name,
            text=chunk.text,
            position=chunk.position,
            heading=chunk.heading,
            page=chunk.page,
            char_start=chunk.char_start,
            char_end=chunk.char_end,
            ready=ready,
            tags=tuple(tags),
            created_us=created_us,
            date=chunk.date,
            version=chunk.version,
            source=source,
            day=first_day(chunk.date),
        )

    def to_chunk(self) -> Chunk:
        return Chunk(
            chunk_id=self.chunk_id,
            document_id=self.document_id,
            file_name=self.file_name,
            text=self.text,
            position=self.position,
            heading=self.heading,
            page=self.page,
            char_start=self.char_start,
            char_end=self.char_end,
            date=self.date,
            version=self.version,
            tags=self.tags,
            source=self.source,
        )
