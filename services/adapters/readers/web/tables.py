"""A page's table as rows of cells; a cell that spans several says its words where they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

from services.adapters.readers.tables import joined_header, markdown_table
from services.adapters.readers.web.tree import Step, Steps

_MAX_COLUMNS = 200
_MAX_REPEATED_CHARS = 200_000  # a small file must not become a huge table


@dataclass(slots=True)
class _Cell:
    is_header: bool
    columns: int
    rows: int
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@dataclass(slots=True)
class _Parts:
    """What stands in a table: its caption's words, and its rows of cells as they are written."""

    caption: list[str] = field(default_factory=list)
    rows: list[list[_Cell]] = field(default_factory=list)
    header_rows: int = 0


def read_table(steps: Steps) -> str:
    """`steps` are those below the table."""
    parts = _parts(steps)
    rows = [row for row in parts.rows if row]
    heads = min(parts.header_rows or _leading_header_rows(rows), len(rows))
    grid = _Grid(heads).lines(rows)
    if 1 < heads < len(grid):
        grid = [joined_header(grid[:heads]), *grid[heads:]]
    caption = " ".join(" ".join(parts.caption).split())
    return "\n\n".join(filter(None, (caption, markdown_table(grid))))


def _parts(steps: Steps) -> _Parts:
    parts = _Parts()
    words: list[str] | None = None
    in_head = False
    for step, node in steps:
        tag = node.tag
        if step is Step.TEXT:
            if words is not None:
                words.append(node.text_content or "")
        elif tag == "thead":
            in_head = step is Step.ENTER
        elif tag == "caption":
            words = parts.caption if step is Step.ENTER else None
        elif tag == "tr" and step is Step.ENTER:
            parts.rows.append([])
            parts.header_rows += in_head
        elif tag in ("td", "th"):
            words = _open_cell(parts, node) if step is Step.ENTER else None
    return parts


def _open_cell(parts: _Parts, node: LexborNode) -> list[str]:
    attributes = node.attributes
    columns, rows = _number(attributes.get("colspan")), _number(attributes.get("rowspan"))
    cell = _Cell(node.tag == "th", min(columns, _MAX_COLUMNS), rows)
    if not parts.rows:
        parts.rows.append([])
    parts.rows[-1].append(cell)
    return cell.words


def _number(value: str | None) -> int:
    value = (value or "1").strip()
    return max(1, int(value[:4])) if value.isascii() and value.isdigit() else 1


class _Grid:
    """A cell over several rows is said in each of them; one over several columns once, a header in each."""

    def __init__(self, header_rows: int) -> None:
        self._header_rows = header_rows
        self._above: dict[int, tuple[int, str]] = {}  # column → how many more rows, and the words
        self._room_chars = _MAX_REPEATED_CHARS

    def lines(self, rows: Sequence[Sequence[_Cell]]) -> list[list[str]]:
        return [self._line(row, at < self._header_rows) for at, row in enumerate(rows)]

    def _line(self, row: Iterable[_Cell], is_header: bool) -> list[str]:
        line: list[str] = []
        for cell in row:
            self._from_above(line)
            if len(line) + cell.columns > _MAX_COLUMNS:
                break
            texts = [cell.text, *[cell.text if is_header else ""] * (cell.columns - 1)]
            if cell.rows > 1:
                self._above.update({len(line) + at: (cell.rows - 1, text) for at, text in enumerate(texts)})
            line += texts
        self._from_above(line)
        return line

    def _from_above(self, line: list[str]) -> None:
        """The cells of earlier rows that reach into this one, up to the next free column."""
        while held := self._above.pop(len(line), None):
            more, text = held
            if more > 1:
                self._above[len(line)] = (more - 1, text)
            self._room_chars -= len(text)
            line.append(text if self._room_chars > 0 else "")


def _leading_header_rows(rows: list[list[_Cell]]) -> int:
    """How many rows at the top have header cells only."""
    count = 0
    while count < len(rows) and rows[count] and all(cell.is_header for cell in rows[count]):
        count += 1
    return count
