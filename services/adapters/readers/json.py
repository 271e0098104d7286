"""JSON and JSON Lines: tables stay tables, conversations become turns, the rest is listed by its keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, markdown_table, with_dates

# JSON values, and how they are written as plain `path: value` lines.


JsonValue: TypeAlias = "str | bool | list[JsonValue] | dict[str, JsonValue] | None"
"""Numbers are kept as the strings in the file: 1.10 stays 1.10, and no number is too big."""

SHORT_CHARS = 120
_LINE_CHARS = 200  # a longer text becomes a separate paragraph below its path


def scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower()


def plain(value: JsonValue) -> str:
    """A scalar, or a list of scalars, in one line."""
    return ", ".join(map(scalar, value)) if isinstance(value, list) else scalar(value)


def is_short(value: JsonValue) -> bool:
    """Whether it is a short scalar."""
    if isinstance(value, list | dict):
        return False
    return not isinstance(value, str) or (len(value) <= SHORT_CHARS and "\n" not in value)


def fits_cell(value: JsonValue) -> bool:
    """Whether it fits a table cell: a short value, or a few (such as somebody's days of work)."""
    if isinstance(value, list):
        return all(map(is_short, value)) and len(plain(value)) <= SHORT_CHARS
    return is_short(value)


def lines_of(value: JsonValue, path: str = "") -> Iterator[str]:
    """One line per scalar, in order; iterative, so that deep nesting cannot overflow the stack."""
    waiting = [iter([(path, value)])]
    while waiting:
        for path, value in waiting[-1]:
            if isinstance(value, dict):
                waiting.append(_members(path, value))
                break
            if isinstance(value, list) and not all(map(is_short, value)):
                waiting.append(_items(path, value))
                break
            yield _line(path, plain(value))
        else:
            waiting.pop()


def _members(path: str, value: dict[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    return ((f"{path}.{key}" if path else key, member) for key, member in value.items())


def _items(path: str, value: list[JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    return ((f"{path}[{at}]", item) for at, item in enumerate(value))


def _line(path: str, text: str) -> str:
    if not path:
        return text
    return f"{path}: {text}" if len(text) <= _LINE_CHARS and "\n" not in text else f"{path}:\n{text}\n"


# Exported conversations: lists of objects with a speaker and a message.


_SPEAKERS = ("role", "from", "speaker", "author", "sender", "角色", "发言人")
_MESSAGE_KEYS = ("content", "value", "text", "message", "parts", "内容")


def is_conversation(items: Sequence[JsonValue]) -> bool:
    return bool(items) and _turn(items[0]) is not None


def turns_of(items: Sequence[JsonValue]) -> list[str]:
    """The messages, each after its speaker; [] if any item of the list is not a message."""
    turns: list[str] = []
    for item in items:
        turn = _turn(item)
        if turn is None:
            return []
        turns.append(turn)
    return turns


def _turn(item: JsonValue) -> str | None:
    if not isinstance(item, dict):
        return None
    speaker = next((name for name in _SPEAKERS if name in item), None)
    message = next((name for name in _MESSAGE_KEYS if _message(item.get(name)) is not None), None)
    if speaker is None or message is None:
        return None
    rest = {key: value for key, value in item.items() if key not in (speaker, message)}
    return "\n".join([f"{_who(item[speaker])}: {_message(item[message])}", *(lines_of(rest) if rest else ())])


def _who(value: JsonValue) -> str:
    if isinstance(value, dict):
        value = value.get("role", value.get("name"))
    return ", ".join(lines_of(value))


def _message(value: JsonValue) -> str | None:
    """A message is a text, a list of parts with texts, or an object with either."""
    if isinstance(value, Mapping):
        value = value.get("parts", value.get("text"))
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    parts = [part.get("text") if isinstance(part, dict) else part for part in value]
    return "\n".join(scalar(part) for part in parts if isinstance(part, str)) or None


# Renders JSON as readable text: tables, conversations, sections by key, `path: value` lines.


_BLOCK_CHARS = 600
_MAX_COLUMNS = 8
_TITLE_CHARS = 80
_MAX_LEVELS = 8
_NAMES = (
    "title", "name", "subject", "question", "heading", "id", "key", "标题", "名称", "姓名", "问题", "编号",
)  # fmt: skip


def add_value(value: JsonValue, outline: Outline, level: int) -> None:
    """Add the value to the outline; `level` is the heading level of its parts."""
    if level > _MAX_LEVELS:
        outline.block("\n".join(lines_of(value)))
    elif isinstance(value, list):
        _add_list(value, outline, level)
    elif isinstance(value, dict):
        _add_object(value, outline, level)
    else:
        outline.block(scalar(value))


def name_of(value: JsonValue, otherwise: str = "") -> str:
    """The object's own name or title, if it has one."""
    if isinstance(value, dict):
        for field in _NAMES:
            named = value.get(field)
            if isinstance(named, str) and named.strip():
                return _one_line(named)
    return otherwise


def _add_object(value: Mapping[str, JsonValue], outline: Outline, level: int) -> None:
    """Small members come first, together; each big one becomes a section below."""
    small: list[str] = []
    big: list[tuple[str, JsonValue]] = []
    for key, member in value.items():
        if isinstance(member, list | dict) and (_is_list_of_records(member) or not _is_small(member)):
            big.append((key, member))
        else:
            small += lines_of(member, key)
    outline.block("\n".join(small))
    for key, member in big:
        outline.heading(level, _one_line(key))
        add_value(member, outline, level + 1)
        outline.leave(level)


def _add_list(items: Sequence[JsonValue], outline: Outline, level: int) -> None:
    if columns := _columns(items):
        outline.block(_table(columns, items))
    elif turns := turns_of(items):
        for turn in turns:
            outline.block(turn)
    else:
        for number, item in enumerate(items, start=1):
            _add_item(item, number, outline, level)


def _add_item(item: JsonValue, number: int, outline: Outline, level: int) -> None:
    """A small item becomes a paragraph, a big one a section."""
    if isinstance(item, list | dict) and (_has_records(item) or not _is_small(item)):
        outline.heading(level, name_of(item, otherwise=str(number)))
        add_value(item, outline, level + 1)
        outline.leave(level)
    else:
        outline.block("\n".join(lines_of(item)))


def _has_records(item: JsonValue) -> bool:
    return isinstance(item, dict) and any(map(_is_list_of_records, item.values()))


def _is_list_of_records(value: JsonValue) -> bool:
    return isinstance(value, list) and (
        is_conversation(value) or bool(_columns(value)) or any(map(_has_records, value[:1]))
    )


def _columns(items: Sequence[JsonValue]) -> list[str]:
    """The fields of a list of short, flat objects with mostly the same keys; [] for any other list."""
    columns: dict[str, None] = {}
    filled = 0
    for item in items:
        if not isinstance(item, dict) or not all(map(fits_cell, item.values())):
            return []
        columns.update(dict.fromkeys(item))
        filled += len(item)
        if len(columns) > _MAX_COLUMNS:
            return []
    is_table = len(items) > 1 and filled * 2 >= len(items) * len(columns) and not is_conversation(items)
    return list(columns) if is_table else []


def _table(columns: Sequence[str], items: Sequence[JsonValue]) -> str:
    records = [item for item in items if isinstance(item, dict)]
    rows = [[_cell(record.get(name)) for name in columns] for record in records]
    return markdown_table([columns, *rows])


def _cell(value: JsonValue) -> str:
    return "" if value is None else plain(value)


def _is_small(value: JsonValue) -> bool:
    room = _BLOCK_CHARS
    for line in lines_of(value):
        room -= len(line) + 1
        if room < 0:
            return False
    return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_TITLE_CHARS]


_DATES = (
    "date", "published", "datePublished", "published_at", "updated", "updated_at", "dateModified", "日期",
)  # fmt: skip


class JsonReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        text = decode(content).lstrip("\ufeff").strip()
        if not text:
            return []
        try:
            value = _parsed(text)
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":  # several values: JSON Lines under another name
                return JsonLinesReader().load_data(content)
            raise _broken(f"it breaks off or errs in line {error.lineno}, column {error.colno}") from None
        return _document_of(value)


class JsonLinesReader(BaseReader):
    """Invalid lines are kept as plain text, unless most lines are invalid."""

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
        return _document_of(records) if records else []


def _parsed(text: str) -> JsonValue:
    """Raises json.JSONDecodeError; accepts NaN and Infinity, although they are not valid JSON."""
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
    """Keep the values of a repeated key: from the second on, the key gets a number."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    value.clear()
    repeats: Counter[str] = Counter()
    for key, member in pairs:
        repeats[key] += 1
        value[key if repeats[key] == 1 else f"{key} ({repeats[key]})"] = member
    return value


def _document_of(value: JsonValue) -> list[Document]:
    outline = Outline()
    title = name_of(value)
    outline.heading(1, title)
    add_value(value, outline, 2 if title else 1)
    fields = value if isinstance(value, dict) else {}
    dates = [date for name in _DATES if isinstance(date := fields.get(name), str)]
    return with_dates(outline.finish(), dates)


def _broken(why: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(f"The file is not valid JSON: {why}.")
