"""What a turn of POST /sessions/import is made of: texts, times, sources, what was asked for."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from core.conversation.turns import (
    MAX_REWRITTEN_CHARS,
    MAX_WARNING_CHARS,
    MAX_WARNING_COUNTS,
    AskedWith,
    RewrittenQuestion,
    Summary,
    TurnWarning,
)
from core.errors import BadRequestError
from core.knowledge import KnowledgeFilter
from core.moments import LATEST_ZONE, parse_time
from routes.fields import AtMost, PlainText, Uuid, WireModel
from routes.schemas import MAX_TOP_N, Name

MAX_TURNS = 20_000
MAX_TEXT_CHARS = 10_000_000  # what bounds an import is the size of its body


def _whole(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_COUNTED = re.compile("[a-z_]{1,40}")

Text = Annotated[PlainText, AtMost(MAX_TEXT_CHARS)]
Verbatim = Annotated[str, AfterValidator(_whole), AtMost(MAX_TEXT_CHARS)]
"""Text of a document, or a name: kept as it is, as far as it can be stored."""
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[PlainText, AtMost(64), Field(description="RFC 3339, with its zone.")]


class GivenCitation(WireModel):
    """A source of an answer (PROTOCOL section 5)."""

    index: Count
    document_id: Verbatim = ""
    file_name: Verbatim
    chunk_id: Verbatim = ""
    score: Finite = 0.0
    page: int | None = None
    heading: Verbatim = ""
    char_start: Count = 0
    char_end: Count = 0
    key_passage: Verbatim = ""
    text: Verbatim = ""
    reason: Verbatim = ""
    cited: bool = False
    passage_start: Count | None = None
    passage_end: Count | None = None
    version: Verbatim = ""
    date: Verbatim = ""


class GivenFilters(WireModel):
    """What the question was limited to; said again, never searched with."""

    tags: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    document_ids: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    sources: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    since: Verbatim = ""
    until: Verbatim = ""

    def to_filter(self) -> KnowledgeFilter:
        lists = (tuple(self.tags), tuple(self.document_ids), tuple(self.sources))
        return KnowledgeFilter(*lists, self.since, self.until)


class GivenUsage(WireModel):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    estimated: bool = True


class GivenSummary(WireModel):
    """What a turn says of those before it; the ids are of turns of this import."""

    text: Text
    start: Uuid
    covers: list[Uuid] = Field(max_length=MAX_TURNS)
    previous: Uuid | None = None
    model_id: Name = ""
    created_at: Moment
    tokens: Count = 0

    def to_summary(self, at: int) -> Summary:
        """Raises BadRequestError, which names the turn by its place."""
        return Summary(
            text=self.text,
            start=str(self.start),
            covers=tuple([str(turn_id) for turn_id in self.covers]),
            previous=str(self.previous) if self.previous else None,
            model_id=self.model_id,
            created_us=moment(self.created_at, f"turns.{at}.summary.created_at") or 0,
            tokens=self.tokens,
        )


class GivenRequest(WireModel):
    """How the question was to be answered."""

    thinking: bool = False
    rerank_top_n: int = Field(10, ge=1, le=MAX_TOP_N)
    use_insert_block: bool = False
    insert_block_llm_id: Name | None = None

    def to_asked(self) -> AskedWith:
        return AskedWith(**self.model_dump())


class GivenWarning(WireModel):
    """What a reader was warned of, as the STATUS event said it; its other fields are counts."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Count]

    code: Name
    message: Annotated[PlainText, AtMost(MAX_WARNING_CHARS)] = ""

    @model_validator(mode="after")
    def _few_plain_counts(self) -> GivenWarning:
        if len(self.counts) > MAX_WARNING_COUNTS:
            raise PydanticCustomError("counts", "too many counts")
        if not all(_COUNTED.fullmatch(name) for name in self.counts) or "stage" in self.counts:
            raise PydanticCustomError("counts", "a count has a name that is not allowed")
        return self

    @property
    def counts(self) -> dict[str, int]:
        return self.__pydantic_extra__

    def to_warning(self) -> TurnWarning:
        return TurnWarning(self.code, self.message, self.counts)


class GivenRewritten(WireModel):
    """How a question was put to be searched with again; the ids are of turns of this import."""

    text: Annotated[PlainText, Field(min_length=1), AtMost(MAX_REWRITTEN_CHARS)]
    turn_ids: list[Uuid] = Field(min_length=1, max_length=100, description="Those that it was made of.")

    def to_rewritten(self) -> RewrittenQuestion:
        return RewrittenQuestion(self.text, tuple([str(turn_id) for turn_id in self.turn_ids]))


def moment(text: str | None, field: str) -> int | None:
    """UTC microseconds. Raises BadRequestError for a time that cannot be read or names no zone."""
    if text is None:
        return None
    found = parse_time(text, UTC)
    if found is None:
        raise BadRequestError(f"{field}: not a time in the form 2026-01-31T23:59:59+08:00.")
    if found != parse_time(text, LATEST_ZONE):
        raise BadRequestError(f"{field}: names no time zone; add Z or an offset such as +08:00.")
    return found
