"""A text as units that are quoted whole: a table, a question with its answer, a block of code with what leads
in to it, an article of a set of rules, a paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from core.blocks import Block, BlockKind, Line, blocks_of, lines_of

MOST_UNITS = 400  # of one text


class UnitKind(Enum):
    TEXT = "text"
    PAIR = "pair"
    ARTICLE = "article"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Unit:
    """`text[start:end]`. `rows` are a table's below its ruler, `columns` what its header calls them."""

    kind: UnitKind
    start: int
    end: int
    columns: tuple[str, ...] = ()
    rows: tuple[Line, ...] = ()


_QUESTION = re.compile(
    r"[ \t]*(?:[-*+>]\s+)?(?:\*\*|__)?(?:#{1,6}\s*)?(?:\*\*)?"
    r"(?:(?:Q|问|問|Question|问题)\s*\d*\s*[:：.、．]\s*\S|.{2,150}[?？]\s*(?:\*\*|__)?\s*$)"
)
_ARTICLE = re.compile(
    r"[ \t]*(?:\*\*)?(?:第[一二三四五六七八九十百零〇\d]{1,6}条|\d{1,2}(?:\.\d{1,3}){1,3}(?=[ \t\u3000])"
    r"|§\s*\d+|(?:Article|Section|Rule|Clause)\s+\d+)"
)


def units_of(text: str) -> list[Unit]:
    """In order, the first MOST_UNITS; those of a text that has no more hold all of it that is not blank."""
    units: list[Unit] = []
    for block in blocks_of(text):
        units.extend(_of_block(text, block))
        if len(units) > MOST_UNITS:
            break
    return list(_joined(text, units[:MOST_UNITS]))


def _of_block(text: str, block: Block) -> Iterator[Unit]:
    match block.kind:
        case BlockKind.TABLE:
            yield _table(text, block)
        case BlockKind.CODE:
            yield Unit(UnitKind.CODE, block.start, block.end)
        case _:
            yield from _of_lines(text, block)


def _of_lines(text: str, block: Block) -> Iterator[Unit]:
    """A paragraph or list, cut before each line that begins an article, or a question with its answer."""
    start, kind = block.start, UnitKind.TEXT
    for line in lines_of(text, block.start, block.end):
        begins = _begins(text, line)
        if begins and line.start > start:
            yield Unit(kind, start, line.start - 1)
            start = line.start
        kind = begins or (kind if line.start > start else UnitKind.TEXT)
    yield Unit(kind, start, block.end)


def _begins(text: str, line: Line) -> UnitKind | None:
    if _ARTICLE.match(text, line.start, line.end):
        return UnitKind.ARTICLE
    return UnitKind.PAIR if _QUESTION.match(text, line.start, line.end) else None


def _joined(text: str, units: Sequence[Unit]) -> Iterator[Unit]:
    """A question that stands alone takes what follows it, a line that leads in to code the code."""
    waiting: Unit | None = None
    for unit in units:
        kind = _together(text, waiting, unit) if waiting else None
        if waiting and kind:
            waiting = Unit(kind, waiting.start, unit.end)
            continue
        if waiting:
            yield waiting
        waiting = unit
    if waiting:
        yield waiting


def _together(text: str, one: Unit, following: Unit) -> UnitKind | None:
    says = text[one.start : one.end].strip()
    if one.kind is UnitKind.PAIR and "\n" not in says:
        return UnitKind.PAIR if following.kind in (UnitKind.TEXT, UnitKind.ARTICLE) else None
    leads_in = one.kind is UnitKind.TEXT and says.endswith((":", "："))
    return UnitKind.CODE if leads_in and following.kind is UnitKind.CODE else None


def _table(text: str, block: Block) -> Unit:
    head, _, *rows = lines_of(text, block.start, block.end)
    return Unit(
        UnitKind.TABLE, block.start, block.end, tuple(cells_of(text[head.start : head.end])), tuple(rows)
    )


_PIPE = re.compile(r"(?<!\\)\|")


def cells_of(row: str) -> list[str]:
    """Of a Markdown table's row."""
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(row.strip().strip("|"))]
