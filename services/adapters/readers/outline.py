"""What readers produce: a document's blocks under headings, tables as text, including those drawn on a page,
fenced code, and dates."""

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

# Together they stay below the usual chunk (192 tokens), as does a paragraph of a record (twice ROW_TOKENS). A
# header of more than half a chunk would not be repeated (services/knowledge/chunking/atoms.py). The rest of
# the chunk is a margin for vocabularies that count more tokens than the estimate.
HEADER_TOKENS = 85
ROW_TOKENS = 80
_MAX_TOKENS_PER_CHAR = 1.5
_KEY_CHARS = 60
_HEADER_JOINT = " / "
_BREAK = "\n\n"

Rows = Sequence[Sequence[str]]

CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")


def width(line: str) -> int:
    """The width in half-widths of an ideograph, each about the width of a letter in other scripts."""
    return len(line) + len(CJK.findall(line))


def markdown_table(rows: Rows) -> str:
    """Markdown, as far as a row fits into a chunk with the header. The first row is the header; short rows
    are padded, empty columns left out.

    A row longer than ROW_TOKENS, and every row under a header longer than HEADER_TOKENS, becomes a paragraph
    of `header: value` lines without its empty cells: separated from its header it would be meaningless.
    """
    width = max((len(row) for row in rows), default=0)
    cells = [[" ".join(cell.split()) for cell in row] + [""] * (width - len(row)) for row in rows]
    columns = [column for column in range(width) if any(row[column] for row in cells)]
    if not columns:
        return ""
    cells = [[row[column] for column in columns] for row in cells]
    head = f"{_line(cells[0])}\n|{' --- |' * len(columns)}"
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
        parts += [*_with_head(head, table), _record(cells[0], row)]
        table = []
    return "\n\n".join(filter(None, [*parts, *_with_head(head, table)]))


def joined_header(rows: Rows) -> list[str]:
    """Join several header rows: "Q1" and "Q2" under "2024" become "2024 / Q1" and "2024 / Q2"."""
    width = max(map(len, rows), default=0)
    columns = ([row[column] for row in rows if column < len(row) and row[column]] for column in range(width))
    return [_HEADER_JOINT.join(dict.fromkeys(titles)) for titles in columns]


def spread(row: Sequence[str], spans: Sequence[int]) -> list[str]:
    """A header row with each cell repeated for every column it spans, unless it spans all."""
    labels = [*row]
    for column, span in enumerate(spans):
        if 1 < span < len(row):
            labels[column : column + span] = [row[column]] * min(span, len(row) - column)
    return labels


def spanned_table(rows: Rows, spans: Sequence[Sequence[int]], max_header_rows: int) -> str:
    """`spans` says how many columns each cell spans. A header continues below a header row in which a cell
    spans several columns, but not all. Single-cell rows above it are the table's caption, those at its end
    remarks."""
    width, count = max(map(len, rows), default=0), 1
    first_spans = [row[0] if row else 1 for row in spans]
    titles, remarks = (title_rows(each, width) for each in (first_spans, first_spans[::-1]))
    end = len(rows) - remarks if titles + remarks + 1 < len(rows) else len(rows)
    above, below = ("\n".join(row[0] for row in each if row[0]) for each in (rows[:titles], rows[end:]))
    rows, spans = rows[titles:end], spans[titles:end]
    while count < min(max_header_rows, len(rows) - 1) and 1 < max(spans[count - 1], default=1) < width:
        count += 1
    header = joined_header([spread(*row) for row in zip(rows[:count], spans, strict=False)])
    return "\n\n".join(filter(None, (above, markdown_table([header, *rows[count:]]), below)))


def title_rows(first_spans: Sequence[int], width: int) -> int:
    """How many of the first rows are one cell over all columns, provided that two other rows follow."""
    count = 0
    while width > 1 and count < len(first_spans) - 2 and first_spans[count] >= width:
        count += 1
    return count


def _with_head(head: str, lines: Sequence[str]) -> list[str]:
    return ["\n".join([head, *lines])] if lines else []


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _fits(text: str, limit_tokens: int) -> bool:
    return len(text) * _MAX_TOKENS_PER_CHAR <= limit_tokens or estimate_tokens(text) <= limit_tokens


def _record(header: Sequence[str], row: Sequence[str]) -> str:
    """One row as lines. As it may be long, each of its paragraphs begins with the line that names the row."""
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


# Tables drawn on a page, found by the rules (lines) around their cells. Points, upwards and to the right.

_TOLERANCE, _MAX_COORDINATE = 3.0, 100_000.0
_MAX_RULES, _MAX_CELLS = 4_000, 5_000  # per page, per table
_MAX_CROSSINGS = 250_000  # pairs of rules that may touch
_MIN_FILLED_SHARE, _MAX_CELL_CHARS = 0.4, 600  # of cells, per cell; else it is a drawing or a layout
_MAX_HEADER_BYTES = 120  # per cell; anything longer is not a header, and would be repeated for every row
_FITS = 0.6  # of a text's estimated width, as the letters of some fonts are narrow
_MIN_SIDE = 12.0  # points, of a column without a rule beside it

Cell = tuple[int, int]
"""The row and column of the first grid place that the cell occupies."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line at height (or distance from the left) `at`, from `start` to `end` on the other axis."""

    at: float
    start: float
    end: float

    def spans(self, place: float) -> bool:
        return self.start - _TOLERANCE <= place <= self.end + _TOLERANCE


@dataclass(frozen=True, slots=True)
class Placed:
    """Text with the position where it begins and its approximate width. `is_turned`: it is rotated."""

    text: str
    x: float
    y: float
    size: float
    width: float
    is_turned: bool = False


class Grid:
    """A table's grid, from rules grouped by position: `rights` from the left, `tops` from the top down."""

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
        """The row and column in which the text begins; None outside."""
        row = bisect_right(self._depths, -(text.y + text.size / 4)) - 1
        column = bisect_right(self.edges, text.x + _TOLERANCE) - 1
        return (row, column) if 0 <= row < self._size[0] and 0 <= column < self._size[1] else None

    def cells(self, texts: Iterable[tuple[Placed, Cell]]) -> dict[Cell, list[Placed]]:
        """The texts of each cell, by its owner; empty if one does not fit: a whole row is then one text."""
        cells: dict[Cell, list[Placed]] = defaultdict(list)
        for text, place in texts:
            owner = self._owners[place]
            right = self.edges[owner[1]] + self.widths[owner]
            if text.is_turned or text.x + _FITS * text.width > right:
                return {}
            cells[owner].append(text)
        return cells

    def rows(self, texts: Mapping[Cell, str]) -> tuple[list[list[str]], list[list[int]]] | None:
        """The table's rows, and how many columns each cell spans; None for a drawing or a page's layout. A
        cell over several rows is repeated in each of them."""
        height, width = self._size
        own = [[self._owners[row, column] for column in range(width)] for row in range(height)]
        rows = [
            ["" if at and row[at - 1] == cell else texts.get(cell, "") for at, cell in enumerate(row)]
            for row in own
        ]
        columns = [at for at in range(width) if any(row[at] for row in rows)]
        filled = [at for at in range(height) if any(rows[at])]
        is_drawing = len(texts) < _MIN_FILLED_SHARE * len({*self._owners.values()})
        is_drawing = is_drawing or max(map(len, texts.values())) > _MAX_CELL_CHARS
        header = next((at for at in filled if len({*own[at]}) > 1), 0)
        is_headed = all(len(cell.encode()) <= _MAX_HEADER_BYTES for cell in rows[header])
        if is_drawing or not is_headed or min(len(columns), len(filled)) < 2:
            return None
        spans = [[own[at][column:].count(own[at][column]) for column in columns] for at in filled]
        return [[rows[at][column] for column in columns] for at in filled], spans


def _owners(rights: Sequence[Sequence[Rule]], tops: Sequence[Sequence[Rule]]) -> dict[Cell, Cell]:
    """For each place the first place of its cell, from which no rule separates it."""
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
            if len(self._across) + len(self._down) + len(self._path) <= _MAX_RULES:
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
        if operator != b"m" and max(map(abs, (x, y, *before))) < _MAX_COORDINATE:
            self._path.append((min(x, before[0]), min(y, before[1]), max(x, before[0]), max(y, before[1])))

    def _rules(self, left: float, low: float, right: float, high: float, *, strokes: bool) -> None:
        """A thin box is a rule; a larger one has four rules if its edge is drawn."""
        if high - low <= _TOLERANCE < right - left:
            self._across.append(Rule((low + high) / 2, left, right))
        elif right - left <= _TOLERANCE < high - low:
            self._down.append(Rule((left + right) / 2, low, high))
        elif strokes and min(right - left, high - low) > _TOLERANCE:
            self._across += [Rule(low, left, right), Rule(high, left, right)]
            self._down += [Rule(left, low, high), Rule(right, low, high)]

    def add(self, across: Sequence[Rule], down: Sequence[Rule]) -> None:
        self._across += across
        self._down += down

    def grids(self) -> Iterator[Grid]:
        return grids(self._across, self._down)


def placed(x: float, y: float, matrix: Sequence[float]) -> tuple[float, float]:
    return x * matrix[0] + y * matrix[2] + matrix[4], x * matrix[1] + y * matrix[3] + matrix[5]


def grids(across: Sequence[Rule], down: Sequence[Rule]) -> Iterator[Grid]:
    """The grids formed by touching rules, if they have at least two rows and two columns."""
    if not across or not down or len(across) + len(down) > _MAX_RULES:
        return
    across, down = _merged(across), _merged(down)
    if len(across) * len(down) > _MAX_CROSSINGS:
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
        tops = _by_position([across[at] for at in sorted(rows)])[::-1]
        rights = _closed(_by_position([down[at] for at in sorted(columns)]), tops) if columns else []
        if min(len(tops), len(rights)) > 2 and len(tops) * len(rights) <= _MAX_CELLS:
            yield Grid(rights, tops)


def _closed(rights: list[list[Rule]], tops: Sequence[Sequence[Rule]]) -> list[list[Rule]]:
    """With a side where all rules across begin or end: many tables have none around them."""
    low, high = tops[-1][0].at, tops[0][0].at
    left = max(min(rule.start for rule in rules) for rules in tops)
    right = min(max(rule.end for rule in rules) for rules in tops)
    before = [[Rule(left, low, high)]] if left < rights[0][0].at - _MIN_SIDE else []
    after = [[Rule(right, low, high)]] if right > rights[-1][0].at + _MIN_SIDE else []
    return [*before, *rights, *after]


def _by_position(rules: Sequence[Rule]) -> list[list[Rule]]:
    """The rules grouped by position, ascending."""
    groups: list[list[Rule]] = []
    for rule in sorted(rules, key=lambda each: each.at):
        if not groups or rule.at - groups[-1][0].at > _TOLERANCE:
            groups.append([])
        groups[-1].append(rule)
    return groups


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Merge the pieces of each rule."""
    merged: list[Rule] = []
    for group in _by_position(rules):
        at, start, end = group[0].at, math.inf, -math.inf
        for rule in sorted(group, key=lambda each: each.start):
            if rule.start > end + _TOLERANCE and end > -math.inf:
                merged.append(Rule(at, start, end))
                start = math.inf
            start, end = min(start, rule.start), max(end, rule.end)
        merged.append(Rule(at, start, end))
    return merged


def section_document(
    text: str,
    heading: Sequence[str],
    page: int | None = None,
    page_starts: Sequence[tuple[int, int]] = (),
) -> Document:
    """One section as a LlamaIndex document, with metadata: heading path (outermost first), page, and where in
    the text other pages begin."""
    metadata = {"heading": list(heading), "page": page}
    return Document(text=text, metadata=metadata | {"page_starts": page_starts} if page_starts else metadata)


def with_dates(documents: list[Document], declared: Sequence[str]) -> list[Document]:
    """Store the dates that the document's format declares in its first section's metadata."""
    if documents:
        documents[0].metadata.update(declared_dates=list(declared))
    return documents


class Outline:
    """Takes headings and blocks in document order; `finish()` returns one Document per section."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._blocks: list[str] = []
        self._documents: list[Document] = []
        self._heading_only = False  # the innermost heading has nothing below it so far
        self._page: int | None = None
        self._heading_page: int | None = None
        self._page_starts: list[tuple[int, int]] = []

    def page(self, number: int) -> None:
        """Everything that follows is on this page (or slide); the headings remain until replaced, also one at
        the end of the page before."""
        if not self._heading_only:
            self._close()
        self._page = number

    def heading(self, level: int, title: str, *, in_text: bool = False) -> None:
        """Start a section, closing the one before; `level` counts from 1, the outermost.

        `in_text`: it is also part of the text, so it need not become text if nothing follows.
        """
        if not title:
            return
        if self._path and level > self._path[-1][0]:
            self._heading_only = False  # a heading below a heading: the path will contain it
        self._close()
        self.leave(level)
        self._path.append((level, title))
        self._heading_only, self._heading_page = not in_text, self._page

    def leave(self, level: int) -> None:
        """End all headings of this level and deeper ones."""
        self._close()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()

    def block(self, text: str, page_starts: Sequence[tuple[int, int]] = ()) -> None:
        """`page_starts`: offsets in the text where pages begin; what follows is on the last of them."""
        if not text.strip():
            return
        if page_starts:
            above = sum(len(block) + len(_BREAK) for block in self._blocks)
            self._page_starts += [(above + start, page) for start, page in page_starts]
        self._blocks.append(text.strip("\n"))
        self._heading_only = False

    def finish(self) -> list[Document]:
        self._close()
        self._heading_only = False
        return self._documents

    def _close(self) -> None:
        first = self._page
        if self._heading_only:
            self._blocks.append(self._path[-1][1])  # a heading without content is its own content
            self._heading_only, first = False, self._heading_page
        if self._blocks:
            titles = [title for _, title in self._path]
            starts = self._page_starts
            if len(starts) > 1:
                first, self._page = starts[0][1], max(page for _, page in starts)
            text = _BREAK.join(self._blocks)
            self._documents.append(section_document(text, titles, first, starts if len(starts) > 1 else ()))
        self._blocks, self._page_starts = [], []


_TICKS = re.compile(r"`{3,}")


def fenced(code: str, info: str = "") -> str:
    """Code in a Markdown fence that nothing inside can close. `info` is the fence's info string."""
    longest = max(map(len, _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{code}\n{fence}"
