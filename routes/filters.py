"""`filters` of a question, as the wire has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.knowledge import KnowledgeFilter
from core.limits import NO_LIMITS
from core.relevance.iso_dates import first_day, last_day
from routes.fields import AtMost, IsoDate, PlainText, Uuid, WireModel

MAX_NAMES = 32
MAX_NAME_CHARS = 64
MAX_DOCUMENTS = 100


def _named(text: str) -> str:
    text = text.strip()
    if not text:
        raise PydanticCustomError("blank", "must not be empty")
    return text


Named = Annotated[PlainText, AfterValidator(_named), AtMost(MAX_NAME_CHARS)]


class FiltersBody(WireModel):
    """What a question is limited to. Of each list one that fits is enough; all that is given must fit."""

    tags: list[Named] = Field([], max_length=MAX_NAMES, description="Documents that carry one of these.")
    document_ids: list[Uuid] = Field([], max_length=MAX_DOCUMENTS, description="One of these documents.")
    sources: list[Named] = Field(
        [], max_length=MAX_NAMES, description="Documents of one of these configured folders."
    )
    since: IsoDate = Field("", description="Dated then or later: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: IsoDate = Field("", description="Dated then or earlier; a month or a year with all its days.")

    @field_validator("until")
    @classmethod
    def _not_before_since(cls, until: str, info: ValidationInfo) -> str:
        since = info.data.get("since", "")
        if since and until and first_day(since) > last_day(until):
            raise PydanticCustomError("order", "must not be before `since`")
        return until

    def to_filter(self) -> KnowledgeFilter:
        return KnowledgeFilter(
            tags=tuple(self.tags),
            document_ids=tuple([str(document_id) for document_id in self.document_ids]),
            sources=tuple(self.sources),
            since=self.since,
            until=self.until,
        ).in_order()


def filter_of(body: FiltersBody | None) -> KnowledgeFilter:
    return body.to_filter() if body is not None else NO_LIMITS
