"""JSON and JSON Lines: tables as tables, conversations as they were held, the rest by its keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.decoding import decode
from services.adapters.json_text import name_of, tell
from services.adapters.json_values import JsonValue
from services.adapters.outline import Outline, with_dates

_DATES = (
    "date",
    "published",
    "datePublished",
    "published_at",
    "updated",
    "updated_at",
    "dateModified",
    "日期",
)


class JsonReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        text = decode(content).lstrip("\ufeff").strip()
        if not text:
            return []
        try:
            value = _parsed(text)
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":  # one value after the other: JSON Lines under another name
                return JsonLinesReader().load_data(content)
            raise _broken(f"it breaks off or errs in line {error.lineno}, column {error.colno}") from None
        return _told(value)


class JsonLinesReader(BaseReader):
    """Lines that are broken stay readable as plain text, unless most of them are."""

    def load_data(self, content: bytes) -> list[Document]:
        lines = [line for line in decode(content).lstrip("\ufeff").split("\n") if line.strip()]
        records: list[JsonValue] = []
        broken = 0
        for line in lines:
            try:
                records.append(_parsed(line))
            except json.JSONDecodeError:
                broken += 1
                records.append(line.strip())
        if broken * 2 > len(lines):
            raise _broken(f"{broken} of its {len(lines)} lines are not")
        return _told(records) if records else []


def _parsed(text: str) -> JsonValue:
    """Raises json.JSONDecodeError; NaN and Infinity, which are no JSON, are read all the same."""
    try:
        parsed: JsonValue = json.loads(
            text,
            parse_int=str,
            parse_float=str,
            parse_constant=str,
            object_pairs_hook=_object,
            strict=False,
        )
    except RecursionError:
        raise UnreadableDocumentError("The file is nested too deeply to read.", code="too_complex") from None
    return parsed


def _object(pairs: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """A key that comes twice loses nothing: its second value gets a number."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    value.clear()
    seen: Counter[str] = Counter()
    for key, member in pairs:
        seen[key] += 1
        value[key if seen[key] == 1 else f"{key} ({seen[key]})"] = member
    return value


def _told(value: JsonValue) -> list[Document]:
    outline = Outline()
    title = name_of(value)
    outline.heading(1, title)
    tell(value, outline, 2 if title else 1)
    fields = value if isinstance(value, dict) else {}
    dates = [date for name in _DATES if isinstance(date := fields.get(name), str)]
    return with_dates(outline.finish(), dates)


def _broken(why: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(f"The file is not valid JSON: {why}.")
