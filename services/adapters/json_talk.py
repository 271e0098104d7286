"""Exported conversations: lists of objects that say who spoke and what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.adapters.json_values import JsonValue, lines_of, scalar

_SPEAKERS = ("role", "from", "speaker", "author", "sender", "角色", "发言人")
_SAID = ("content", "value", "text", "message", "parts", "内容")


def is_talk(items: Sequence[JsonValue]) -> bool:
    return bool(items) and _turn(items[0]) is not None


def turns_of(items: Sequence[JsonValue]) -> list[str]:
    """What was said, each after who said it; [] when not everything in the list was said by somebody."""
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
    said = next((name for name in _SAID if _words(item.get(name)) is not None), None)
    if speaker is None or said is None:
        return None
    rest = {key: value for key, value in item.items() if key not in (speaker, said)}
    return "\n".join([f"{_who(item[speaker])}: {_words(item[said])}", *(lines_of(rest) if rest else ())])


def _who(value: JsonValue) -> str:
    if isinstance(value, dict):
        value = value.get("role", value.get("name"))
    return ", ".join(lines_of(value))


def _words(value: JsonValue) -> str | None:
    """A message is a text, or a list of parts with texts, or an object that has either."""
    if isinstance(value, Mapping):
        value = value.get("parts", value.get("text"))
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    parts = [part.get("text") if isinstance(part, dict) else part for part in value]
    return "\n".join(scalar(part) for part in parts if isinstance(part, str)) or None
