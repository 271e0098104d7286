"""JSON as text for readers: tables, conversations, sections by key, `path: value` lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.adapters.json_talk import is_talk, turns_of
from services.adapters.json_values import JsonValue, is_short, lines_of, scalar
from services.adapters.outline import Outline
from services.adapters.tables import markdown_table

_BLOCK_CHARS = 600
_MAX_COLUMNS = 8
_TITLE_CHARS = 80
_MAX_LEVELS = 8
_NAMES = (
    "title",
    "name",
    "subject",
    "question",
    "heading",
    "id",
    "key",
    "标题",
    "名称",
    "姓名",
    "问题",
    "编号",
)


def tell(value: JsonValue, outline: Outline, level: int = 1) -> None:
    """`level` is that of the headings which the value's parts get."""
    if level > _MAX_LEVELS:
        outline.block("\n".join(lines_of(value)))
    elif isinstance(value, list):
        _tell_list(value, outline, level)
    elif isinstance(value, dict):
        _tell_object(value, outline, level)
    else:
        outline.block(scalar(value))


def name_of(value: JsonValue, otherwise: str = "") -> str:
    """What the object calls itself."""
    if isinstance(value, dict):
        for field in _NAMES:
            named = value.get(field)
            if isinstance(named, str) and named.strip():
                return _one_line(named)
    return otherwise


def _tell_object(value: Mapping[str, JsonValue], outline: Outline, level: int) -> None:
    """What is small comes first and together; each big member is a section below."""
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
        tell(member, outline, level + 1)
        outline.leave(level)


def _tell_list(items: Sequence[JsonValue], outline: Outline, level: int) -> None:
    if columns := _columns(items):
        outline.block(_table(columns, items))
    elif turns := turns_of(items):
        for turn in turns:
            outline.block(turn)
    else:
        for number, item in enumerate(items, start=1):
            _tell_item(item, number, outline, level)


def _tell_item(item: JsonValue, number: int, outline: Outline, level: int) -> None:
    """A small one is a paragraph beside the others, a big one a section of its own."""
    if isinstance(item, list | dict) and (_has_records(item) or not _is_small(item)):
        outline.heading(level, name_of(item, otherwise=str(number)))
        tell(item, outline, level + 1)
        outline.leave(level)
    else:
        outline.block("\n".join(lines_of(item)))


def _has_records(item: JsonValue) -> bool:
    return isinstance(item, dict) and any(map(_is_list_of_records, item.values()))


def _is_list_of_records(value: JsonValue) -> bool:
    return isinstance(value, list) and (
        is_talk(value) or bool(_columns(value)) or any(map(_has_records, value[:1]))
    )


def _columns(items: Sequence[JsonValue]) -> list[str]:
    """The fields of a list of short, flat objects that have much in common; [] for any other list."""
    columns: dict[str, None] = {}
    filled = 0
    for item in items:
        if not isinstance(item, dict) or not all(map(is_short, item.values())):
            return []
        columns.update(dict.fromkeys(item))
        filled += len(item)
        if len(columns) > _MAX_COLUMNS:
            return []
    is_table = len(items) > 1 and filled * 2 >= len(items) * len(columns) and not is_talk(items)
    return list(columns) if is_table else []


def _table(columns: Sequence[str], items: Sequence[JsonValue]) -> str:
    records = [item for item in items if isinstance(item, dict)]
    rows = [[_cell(record.get(name)) for name in columns] for record in records]
    return markdown_table([columns, *rows])


def _cell(value: JsonValue) -> str:
    return "" if value is None else scalar(value)


def _is_small(value: JsonValue) -> bool:
    room = _BLOCK_CHARS
    for line in lines_of(value):
        room -= len(line) + 1
        if room < 0:
            return False
    return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_TITLE_CHARS]
