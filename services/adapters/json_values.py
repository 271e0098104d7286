"""JSON values, and the plain `path: value` lines that say them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

JsonValue: TypeAlias = "str | bool | list[JsonValue] | dict[str, JsonValue] | None"
"""Numbers are strings as they were written: 1.10 stays 1.10, and no number is too big."""

SHORT_CHARS = 120
_LINE_CHARS = 200  # a longer text is a paragraph of its own under its path


def scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower()


def is_short(value: JsonValue) -> bool:
    """A plain value that fits into a table's cell."""
    if isinstance(value, list | dict):
        return False
    return not isinstance(value, str) or (len(value) <= SHORT_CHARS and "\n" not in value)


def lines_of(value: JsonValue, path: str = "") -> Iterator[str]:
    """One for each plain value, in order; without recursion, so that depth costs nothing."""
    waiting = [iter([(path, value)])]
    while waiting:
        for path, value in waiting[-1]:
            if isinstance(value, dict):
                waiting.append(_members(path, value))
                break
            if isinstance(value, list) and not all(map(is_short, value)):
                waiting.append(_items(path, value))
                break
            yield _line(path, ", ".join(map(scalar, value)) if isinstance(value, list) else scalar(value))
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
