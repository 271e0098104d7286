"""What readers put together: a document's blocks under their headings, tables as text, those drawn on a page
among them, code in fences, dates."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llama_index.core.schema import Document

from core.prompt.budget import estimate_tokens

# Together they stay under the usual chunk (192 tokens), and so does a paragraph of a record, twice a row. A
# header of more than half a chunk would not be repeated (services/knowledge/chunking/atoms.py). What is left
# of the chunk is for vocabularies that count more than the estimate.
HEADER_TOKENS = 85
ROW_TOKENS = 80
_HEAVIEST_CHAR_TOKENS = 1.5
_KEY_CHARS = 60
_HEADER_JOINT = " / "
_BREAK = "\n\n"

Rows = Sequence[Sequence[str]]


def markdown_table(rows: Rows) -> str:
    """Markdown where a row fits into a chunk beside the header. The first row is it, short rows are filled
    up.

    A row longer than ROW_TOKENS, and every row under a header longer than HEADER_TOKENS, becomes a paragraph
    of `header: value` lines without its empty cells: cut off from its header it would say nothing.
    """
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    cells = [[" ".join(cell.split()) for cell in row] + [""] * (width - len(row)) for row in rows]
    head = f"{_line(cells[0])}\n|{' --- |' * width}"
    if len(cells) == 1:
        return head
    parts: list[str] = []
    table: list[str] = []
    wide = not _fits(head, HEADER_TOKENS)
    for row in cells[1:]:
        line = _line(row)
        if not wide and _fits(line, ROW_TOKENS):
            table.append(line)
            continue
        parts += [*_under(head, table), _record(cells[0], row)]
        table = []
    return "\n\n".join(filter(None, [*parts, *_under(head, table)]))


def joined_header(rows: Rows) -> list[str]:
    """Several header rows as one: under "2024", "Q1" and "Q2" become "2024 / Q1" and "2024 / Q2"."""
    width = max(map(len, rows), default=0)
    columns = ([row[column] for row in rows if column < len(row) and row[column]] for column in range(width))
    return [_HEADER_JOINT.join(dict.fromkeys(titles)) for titles in columns]


def spread(row: Sequence[str], spans: Sequence[int]) -> list[str]:
    """A header's row in which each cell is said for every column that it spans, unless it spans all."""
    labels = [*row]
    for column, span in enumerate(spans):
        if 1 < span < len(row):
            labels[column : column + span] = [row[column]] * min(span, len(row) - column)
    return labels


def spanned_table(rows: Rows, spans: Sequence[Sequence[int]], most_header_rows: int) -> str:
    """`spans` says for each cell over how many columns it goes. A header goes on below a row of it in which a
    cell spans columns, though not all of them. Rows above it that are one cell are the table's caption."""
    width, count = max(map(len, rows), default=0), 1
    titles = title_rows([row[0] if row else 1 for row in spans], width)
    caption = "\n".join(row[0] for row in rows[:titles] if row[0])
    rows, spans = rows[titles:], spans[titles:]
    while count < min(most_header_rows, len(rows) - 1) and 1 < max(spans[count - 1], default=1) < width:
        count += 1
    header = joined_header([spread(*row) for row in zip(rows[:count], spans, strict=False)])
    return "\n\n".join(filter(None, (caption, markdown_table([header, *rows[count:]]))))


def title_rows(first_spans: Sequence[int], width: int) -> int:
    """How many rows at the top are one cell over all columns, as long as a header and a row follow them."""
    count = 0
    while width > 1 and count < len(first_spans) - 2 and first_spans[count] >= width:
        count += 1
    return count


def _under(head: str, lines: Sequence[str]) -> list[str]:
    return ["\n".join([head, *lines])] if lines else []


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _fits(text: str, limit_tokens: int) -> bool:
    return len(text) * _HEAVIEST_CHAR_TOKENS <= limit_tokens or estimate_tokens(text) <= limit_tokens


def _record(header: Sequence[str], row: Sequence[str]) -> str:
    """One row. It may be long, too: each paragraph of it begins with the line that names the row."""
    lines = [
        f"{title}: {value}" if title else value for title, value in zip(header, row, strict=True) if value
    ]
    paragraphs: list[list[str]] = []
    tokens = 0
    for line in lines:
        line_tokens = estimate_tokens(line)
        if not paragraphs or (tokens + line_tokens > 2 * ROW_TOKENS and len(paragraphs[-1]) > 1):
            paragraphs.append([lines[0][:_KEY_CHARS]] if paragraphs else [])
            tokens = _KEY_CHARS if len(paragraphs) > 1 else 0
        paragraphs[-1].append(line)
        tokens += line_tokens
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs)


# Tables as they are drawn on a page: by the rules around their cells. Points, upwards and to the right.

_TOUCH, _FURTHEST = 3.0, 100_000.0
_MOST_RULES, _MOST_CELLS = 4_000, 5_000  # of a page, of a table
_MOST_MEETINGS = 250_000  # pairs of rules that may meet
_LEAST_FILLED, _MOST_CHARS = 0.4, 600  # of its cells, in a cell; else it is a drawing, or a page's layout
_MOST_HEADER_BYTES = 120  # in a cell; what is longer is no header, and would be said again for every row
_FITS = 0.6  # of the width that a text seems to have; letters of some fonts are narrow


Cell = tuple[int, int]
"""The row and the column of the first place of a grid that it takes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line at this height, or this far to the right, from `start` to `end` on the other axis."""

    at: float
    start: float
    end: float

    def spans(self, place: float) -> bool:
        return self.start - _TOUCH <= place <= self.end + _TOUCH


@dataclass(frozen=True, slots=True)
class Placed:
    """Text with the place where it begins, and about how wide it is. Turned text is `is_turned`."""

    text: str
    x: float
    y: float
    size: float
    width: float
    is_turned: bool = False


class Grid:
    """Its rules, those at one place together: `rights` from the left, `tops` from the top down."""

    def __init__(self, rights: list[list[Rule]], tops: list[list[Rule]]) -> None:
        self.edges = [rules[0].at for rules in rights]
        self._depths = [-rules[0].at for rules in tops]
        self._size = len(tops) - 1, len(rights) - 1
        self._owners = _owners(rights, tops)
        self.widths = {
            owner: self.edges[column + 1] - self.edges[owner[1]]
            for (_, column), owner in self._owners.items()
        }

    def place(self, text: Placed) -> Cell | None:
        """Row and column of the text; None outside."""
        row = bisect_right(self._depths, -(text.y + text.size / 4)) - 1
        column = bisect_right(self.edges, text.x + _TOUCH) - 1
        return (row, column) if 0 <= row < self._size[0] and 0 <= column < self._size[1] else None

    def cells(self, texts: Iterable[tuple[Placed, Cell]]) -> dict[Cell, list[Placed]]:
        """The texts of each cell, by its owner; none where one does not fit: a whole row is one text."""
        cells: dict[Cell, list[Placed]] = defaultdict(list)
        for text, place in texts:
            owner = self._owners[place]
            right = self.edges[owner[1]] + self.widths[owner]
            if text.is_turned or text.x + _FITS * text.width > right:
                return {}
            cells[owner].append(text)
        return cells

    def rows(self, texts: Mapping[Cell, str]) -> tuple[list[list[str]], list[list[int]]] | None:
        """The table's rows, and over how many columns each cell goes; None of a drawing or a page's layout. A
        cell over several rows is said in each of them."""
        height, width = self._size
        own = [[self._owners[row, column] for column in range(width)] for row in range(height)]
        rows = [
            ["" if at and row[at - 1] == cell else texts.get(cell, "") for at, cell in enumerate(row)]
            for row in own
        ]
        columns = [at for at in range(width) if any(row[at] for row in rows)]
        filled = [at for at in range(height) if any(rows[at])]
        is_drawing = len(texts) < _LEAST_FILLED * len({*self._owners.values()})
        is_drawing = is_drawing or max(map(len, texts.values())) > _MOST_CHARS
        header = next((at for at in filled if len({*own[at]}) > 1), 0)
        is_headed = all(len(cell.encode()) <= _MOST_HEADER_BYTES for cell in rows[header])
        if is_drawing or not is_headed or min(len(columns), len(filled)) < 2:
            return None
        spans = [[own[at][column:].count(own[at][column]) for column in columns] for at in filled]
        return [[rows[at][column] for column in columns] for at in filled], spans


def _owners(rights: Sequence[Sequence[Rule]], tops: Sequence[Sequence[Rule]]) -> dict[Cell, Cell]:
    """Of each place the first one of its cell: no rule is between them."""
    middles = [(left[0].at + right[0].at) / 2 for left, right in pairwise(rights)]
    heights = [(top[0].at + low[0].at) / 2 for top, low in pairwise(tops)]
    owners: dict[Cell, Cell] = {}
    for row, height in enumerate(heights):
        for column, middle in enumerate(middles):
            owners[row, column] = (row, column)
            if column and not any(rule.spans(height) for rule in rights[column]):
                owners[row, column] = owners[row, column - 1]
            elif row and not any(rule.spans(middle) for rule in tops[row]):
                owners[row, column] = owners[row - 1, column]
    return owners


class Drawing:
    """The rules of a page, from the operations that draw it."""

    _FILLS, _STROKES = (b"f", b"F", b"f*"), (b"S", b"s", b"B", b"B*", b"b", b"b*")

    def __init__(self) -> None:
        self._across: list[Rule] = []
        self._down: list[Rule] = []
        self._path: list[tuple[float, float, float, float]] = []
        self._from = 0.0, 0.0

    def operation(self, operator: bytes, operands: Sequence[object], matrix: Sequence[float]) -> None:
        if operator in (b"re", b"m", b"l"):
            numbers = [float(each) for each in operands if isinstance(each, int | float)]
            if len(self._across) + len(self._down) + len(self._path) <= _MOST_RULES:
                self._trace(operator, numbers, matrix)
        elif operator in self._FILLS or operator in self._STROKES:
            for box in self._path:
                self._rules(*box, strokes=operator in self._STROKES)
            self._path = []
        elif operator == b"n":
            self._path = []

    def _trace(self, operator: bytes, numbers: Sequence[float], matrix: Sequence[float]) -> None:
        if len(numbers) != (4 if operator == b"re" else 2):
            return
        x, y = placed(numbers[0], numbers[1], matrix)
        before, self._from = self._from, (x, y)
        if operator == b"re":
            before = placed(numbers[0] + numbers[2], numbers[1] + numbers[3], matrix)
        if operator != b"m" and max(map(abs, (x, y, *before))) < _FURTHEST:
            self._path.append((min(x, before[0]), min(y, before[1]), max(x, before[0]), max(y, before[1])))

    def _rules(self, left: float, low: float, right: float, high: float, *, strokes: bool) -> None:
        """A thin box is a rule; a larger one has four where its edge is drawn."""
        if high - low <= _TOUCH < right - left:
            self._across.append(Rule((low + high) / 2, left, right))
        elif right - left <= _TOUCH < high - low:
            self._down.append(Rule((left + right) / 2, low, high))
        elif strokes and min(right - left, high - low) > _TOUCH:
            self._across += [Rule(low, left, right), Rule(high, left, right)]
            self._down += [Rule(left, low, high), Rule(right, low, high)]

    def grids(self) -> Iterator[Grid]:
        return grids(self._across, self._down)


def placed(x: float, y: float, matrix: Sequence[float]) -> tuple[float, float]:
    return x * matrix[0] + y * matrix[2] + matrix[4], x * matrix[1] + y * matrix[3] + matrix[5]


def grids(across: Sequence[Rule], down: Sequence[Rule]) -> Iterator[Grid]:
    """Of rules that touch, those with two rows and two columns at least."""
    if not across or not down or len(across) + len(down) > _MOST_RULES:
        return
    across, down = _merged(across), _merged(down)
    if len(across) * len(down) > _MOST_MEETINGS:
        return
    left = {*range(len(across))}
    touching = [
        [at for at, rule in enumerate(across) if rule.spans(other.at) and other.spans(rule.at)]
        for other in down
    ]
    while left:
        rows, columns = {left.pop()}, set[int]()
        while more := {
            at for at, meets in enumerate(touching) if at not in columns and not rows.isdisjoint(meets)
        }:
            columns |= more
            rows |= {row for at in more for row in touching[at]}
        left -= rows
        tops = _together([across[at] for at in sorted(rows)])[::-1]
        rights = _together([down[at] for at in sorted(columns)])
        if min(len(tops), len(rights)) > 2 and len(tops) * len(rights) <= _MOST_CELLS:
            yield Grid(rights, tops)


def _together(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Those at one place; ascending."""
    groups: list[list[Rule]] = []
    for rule in sorted(rules, key=lambda each: each.at):
        if groups and rule.at - groups[-1][0].at <= _TOUCH:
            groups[-1].append(rule)
        else:
            groups.append([rule])
    return groups


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Pieces of one rule as one."""
    merged: list[Rule] = []
    for group in _together(rules):
        at, start, end = group[0].at, math.inf, -math.inf
        for rule in sorted(group, key=lambda each: each.start):
            if rule.start > end + _TOUCH and end > -math.inf:
                merged.append(Rule(at, start, end))
                start = math.inf
            start, end = min(start, rule.start), max(end, rule.end)
        merged.append(Rule(at, start, end))
    return merged


def section_document(
    text: str,
    heading: Sequence[str] = (),
    page: int | None = None,
    page_starts: Sequence[tuple[int, int]] = (),
) -> Document:
    """One section as LlamaIndex carries it: heading path (outermost first), page, and where in the text which
    other page begins, in the metadata."""
    metadata = {"heading": list(heading), "page": page}
    return Document(text=text, metadata=metadata | {"page_starts": page_starts} if page_starts else metadata)


def with_dates(documents: list[Document], declared: Sequence[str] = ()) -> list[Document]:
    """The document's dates, as its format declares them, in its first section's metadata."""
    if documents:
        documents[0].metadata.update(declared_dates=list(declared))
    return documents


class Outline:
    """Feed it headings and blocks in document order; `finish()` gives one Document per section."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._blocks: list[str] = []
        self._documents: list[Document] = []
        self._unsaid = False  # the innermost heading has had nothing under it so far
        self._page: int | None = None
        self._page_starts: list[tuple[int, int]] = []

    def page(self, number: int) -> None:
        """What follows is on this page (or slide); the headings stay until others replace them."""
        self._close()
        self._unsaid = False
        self._page = number

    def heading(self, level: int, title: str, *, in_text: bool = False) -> None:
        """A heading closes the section before it; `level` counts from 1, the outermost.

        `in_text`: it stands in the text as well, so it need not become text when nothing follows.
        """
        if not title:
            return
        if self._path and level > self._path[-1][0]:
            self._unsaid = False  # a heading under a heading: the path will say it
        self._close()
        self.leave(level)
        self._path.append((level, title))
        self._unsaid = not in_text

    def leave(self, level: int) -> None:
        """What follows is under no heading of this level or a deeper one."""
        self._close()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()

    def block(self, text: str, page_starts: Sequence[tuple[int, int]] = ()) -> None:
        """`page_starts`: where in the text which page begins; what follows is on the last one of them."""
        if not text.strip():
            return
        if page_starts:
            above = sum(len(block) + len(_BREAK) for block in self._blocks)
            self._page_starts += [(above + start, page) for start, page in page_starts]
        self._blocks.append(text.strip("\n"))
        self._unsaid = False

    def finish(self) -> list[Document]:
        self._close()
        self._unsaid = False
        return self._documents

    def _close(self) -> None:
        if self._unsaid:
            self._blocks.append(self._path[-1][1])  # a heading with nothing under it is all there is
            self._unsaid = False
        if self._blocks:
            titles = [title for _, title in self._path]
            starts, first = self._page_starts, self._page
            if len(starts) > 1:
                first, self._page = starts[0][1], max(page for _, page in starts)
            text = _BREAK.join(self._blocks)
            self._documents.append(section_document(text, titles, first, starts if len(starts) > 1 else ()))
        self._blocks, self._page_starts = [], []


_TICKS = re.compile(r"`{3,}")


def fenced(code: str, info: str = "") -> str:
    """Code in a Markdown fence that nothing in it can close. `info` says what it is, after the opening
    fence."""
    longest = max(map(len, _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{code}\n{fence}"
