"""What the fields of request bodies are made of: strict types, texts that can be stored, dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from core.relevance.iso_dates import is_iso_date
from core.text import scrub

Uuid = Annotated[UUID, Field(strict=False)]


def _plain(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "must not contain the NUL character")
    return scrub(text)


PlainText = Annotated[str, AfterValidator(_plain)]
"""Without NUL; line breaks of every kind are LF, and a lone surrogate is U+FFFD."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit of characters. pydantic's own refuses lone surrogates in front of a validator that replaces
    them, and behind one its message counts items."""

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


class WireModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
