"""The blocks of a text: paragraphs, Markdown tables and fenced code, found line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

_FENCE = re.compile(r"[ ]{0,3}(```+|~~~+)")
_TABLE_RULE = re.compile(r"[ ]*+\|?+[ ]*+:?+-++:?+[ ]*+(?:\|[ ]*+:?+-*+:?+[ ]*+)*+$")


class BlockKind(Enum):
    PARAGRAPH = "paragraph"
    TABLE = "table"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Line:
    """`text[start:end]` without its line break."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    kind: BlockKind
    lines: tuple[Line, ...]


def lines_of(text: str) -> list[Line]:
    """The lines of a text in which every line break is LF."""
    lines: list[Line] = []
    start = 0
    for line in text.split("\n"):
        lines.append(Line(start, start + len(line), line))
        start += len(line) + 1
    return lines


def blocks_of(text: str) -> Iterator[Block]:
    """Every non-blank line is in one block, in the order of the text; an open fence runs to the end."""
    lines = lines_of(text)
    index = 0
    while index < len(lines):
        if not lines[index].text.strip():
            index += 1
            continue
        kind, end = _block_at(lines, index)
        yield Block(kind, tuple(lines[index:end]))
        index = end


def _block_at(lines: list[Line], index: int) -> tuple[BlockKind, int]:
    if fence := _FENCE.match(lines[index].text):
        return BlockKind.CODE, _fence_end(lines, index + 1, fence.group(1))
    if _is_table(lines, index):
        return BlockKind.TABLE, _run_end(lines, index + 2, table=True)
    return BlockKind.PARAGRAPH, _run_end(lines, index + 1, table=False)


def _fence_end(lines: list[Line], index: int, fence: str) -> int:
    while index < len(lines):
        closing = lines[index].text.strip()
        index += 1
        if closing.startswith(fence) and not closing.strip(fence[0]):
            break
    return index


def _is_table(lines: list[Line], index: int) -> bool:
    if "|" not in lines[index].text or index + 1 >= len(lines):
        return False
    rule = lines[index + 1].text
    return "|" in rule and _TABLE_RULE.match(rule) is not None


def _run_end(lines: list[Line], index: int, *, table: bool) -> int:
    """The end of a table's rows, or of a paragraph (a table or a fence may follow without a blank line)."""
    while index < len(lines) and lines[index].text.strip():
        if table and "|" not in lines[index].text:
            break
        if not table and (_FENCE.match(lines[index].text) or _is_table(lines, index)):
            break
        index += 1
    return index
