"""Building blocks of the wire models: strict requests, replies, field types, a question's filters, and the
error body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from core.dates import first_day, is_iso_date, last_day, rfc3339
from core.knowledge import NO_LIMITS, KnowledgeFilter
from core.text import scrub

Uuid = Annotated[UUID, Field(strict=False)]


def text_of(value: UUID | None) -> str | None:
    return str(value) if value is not None else None


def _plain(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "must not contain the NUL character")
    return scrub(text)


PlainText = Annotated[str, AfterValidator(_plain)]
"""Rejects NUL; normalizes all line breaks to LF and lone surrogates to U+FFFD."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit in characters. pydantic's own limit refuses lone surrogates when placed before a validator that
    replaces them, and placed after one its message counts items."""

    chars: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "maxLength": self.chars}

    def _checked(self, text: str) -> str:
        if len(text) > self.chars:
            raise PydanticCustomError(
                "too_long",
                "{number} characters, at most {most} are allowed",
                {"number": len(text), "most": self.chars},
            )
        return text


def _iso_date(text: str) -> str:
    if text and not is_iso_date(text):
        raise PydanticCustomError("date", "must be YYYY, YYYY-MM or YYYY-MM-DD")
    return text


IsoDate = Annotated[str, AfterValidator(_iso_date)]
"""A day, a month or a year; "" for none."""

AskedDate = Annotated[
    IsoDate,
    Field(
        description="When the question is asked: YYYY-MM-DD, YYYY-MM or YYYY; absent or empty: today, in "
        "TIMEZONE. Last year and 去年 are relative to it; of a document's versions, the one valid then "
        "comes first."
    ),
]


def _shown(moment: object) -> object:
    return rfc3339(moment) if isinstance(moment, int) else moment


Moment = Annotated[str, BeforeValidator(_shown), Field(json_schema_extra={"format": "date-time"})]
"""A time in a reply: RFC 3339 in UTC, with microseconds and Z; also built from UTC microseconds."""
MaybeMoment = Annotated[Moment | None, BeforeValidator(lambda moment: moment or None)]
"""As Moment, or null; 0 microseconds mean null."""


def _read_as(name: str) -> AliasChoices | str:
    """Read `created_at` of a reply from `created_us` of the object it shows."""
    return AliasChoices(name, f"{name[:-2]}us") if name.endswith("_at") else name


class WireModel(BaseModel):
    """A request body: strict types, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Reply(BaseModel):
    """A part of a response. Only fields that were set are written, and a reader ignores unknown ones."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        populate_by_name=True,
        protected_namespaces=(),
        alias_generator=AliasGenerator(validation_alias=_read_as),
    )


def example(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the model_config of a body with examples."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


def absent(description: str) -> Any:
    """A field that a reply omits, and never sends as null; reading it with the model gives None."""
    return Field(None, description=description, json_schema_extra=_never_null)


def _never_null(schema: dict[str, Any]) -> None:
    schema.pop("default", None)
    rest = [each for each in schema.pop("anyOf", []) if each != {"type": "null"}]
    if len(rest) == 1:
        schema.update(rest[0])
    elif rest:
        schema["anyOf"] = rest


MAX_NAMES = 32
MAX_NAME_CHARS = 64
MAX_DOCUMENTS = 100

Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
MaxTokens = Annotated[int, Field(ge=1, le=1_000_000)]


def _named(text: str) -> str:
    text = text.strip()
    if not text:
        raise PydanticCustomError("blank", "must not be empty")
    return text


Named = Annotated[PlainText, AfterValidator(_named), AtMost(MAX_NAME_CHARS)]


class FiltersBody(WireModel):
    """A question's filters. Within a list, one match is enough; all given fields must match."""

    tags: list[Named] = Field([], max_length=MAX_NAMES, description="Documents with one of these tags.")
    document_ids: list[Uuid] = Field([], max_length=MAX_DOCUMENTS, description="Only these documents.")
    sources: list[Named] = Field(
        [], max_length=MAX_NAMES, description="Documents of one of these followed folders."
    )
    since: IsoDate = Field("", description="Dated on or after: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: IsoDate = Field("", description="Dated on or before; a month or a year includes all its days.")

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


class ErrorBody(Reply):
    """What went wrong, for a program and for a person."""

    code: str = Field(description="The kind of error, for programs: snake_case, never translated.")
    message: str = Field(description="One plain sentence; it names an invalid field.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str = Field(description="The request's id in the server's log, also in X-Request-Id.")
    cause: str = absent("Why a model did not answer: rate_limited, timeout, unreachable, empty and others.")
    retry_after_s: int = absent("How many seconds the model's server asks clients to wait.")
    type: str = absent("Under /v1: the kind of error in OpenAI's terms.")
    param: str | None = Field(None, description="Under /v1: the invalid parameter, or null.")


class ErrorResponse(Reply):
    """The body of every error."""

    model_config = example(
        {
            "error": {
                "code": "unknown_session",
                "message": "There is no such session.",
                "retryable": False,
                "request_id": "0b0e7f5c2a1d4a0f9b3c6d8e1f2a3b4c",
            }
        }
    )

    error: ErrorBody = Field(description="The error.")
