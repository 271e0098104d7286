"""The lines of a PDF's pages as they are drawn, with the look of their letters: which are rows of a table,
which fill their column, so that a sentence may continue in the next line, and which are margins.

Tables are recognised by the rules around their cells; without rules they are lines of cells in order.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import pypdf

from services.adapters.readers.outline import CJK, Drawing, Placed, Rule, placed, spanned_table, width
from services.adapters.readers.pdf_parts import UNKNOWN, as_typed, is_damaged

_MAX_FONT_SIZE = 10_000
_BOLD_FONT = re.compile(r"bold|black|heavy|demi|-medi\b|bx\d|simhei|heiti", re.IGNORECASE)
_CODE_FONT = re.compile(r"mono(?!type)|courier|typewriter|consol|menlo|iosevka|tt\d", re.IGNORECASE)
_MAX_KERN = 250  # of 1000, a font's size


@dataclass(frozen=True, slots=True)
class Look:
    size: float = 0
    is_bold: bool = False
    is_code: bool = False  # its letters are equally wide


_PICTURES = (b"Do", b"INLINE IMAGE")
_STAMP_CHARS, _MIN_CURVES = 20, 100  # a scanner app's name, a page number; fewer curves are no text


class Row(str):
    """A row of a table without rules, or a line of code: no sentence continues from it or into it."""

    def closed(self, close: Callable[[str], str]) -> Row:
        return Row(close(self))


class Table(Row):
    """A table as one line of its page, in Markdown unless it is a form. `edges`: where its columns begin."""

    rows: list[list[str]]
    spans: list[list[int]]
    edges: list[float]
    is_form: bool

    @classmethod
    def of(cls, rows: list[list[str]], spans: list[list[int]], edges: list[float]) -> Table:
        """Most rows of a form have a cell over several columns, and its first row is not a header."""
        is_form = 2 * sum(max(row) > 1 for row in spans) > len(spans)
        form = "\n".join(" ".join(filter(None, row)) for row in rows)
        table = cls((form if is_form else spanned_table(rows, spans, _MAX_HEADER_ROWS)) + "\n")
        table.rows, table.spans, table.edges, table.is_form = rows, spans, edges, is_form
        return table

    def closed(self, close: Callable[[str], str]) -> Table:
        return Table.of([[*map(close, row)] for row in self.rows], self.spans, self.edges)


@dataclass(slots=True)
class _Raw:
    """A line being assembled; `columns`: where texts begin after a wide gap."""

    text: str = ""
    looks: Counter[Look] = field(default_factory=Counter)
    columns: set[int] = field(default_factory=set)


class Extracted(NamedTuple):
    """A page's lines, and the looks of each. `is_scan`: its text is only in a picture."""

    lines: list[str]
    looks: dict[str, Look]
    is_scan: bool = False


class DrawnPage:
    """Collects what is drawn on a page, piece by piece, as pypdf reports it: texts with the blank or line
    break that it detects beside them."""

    def __init__(self) -> None:
        self._texts: list[Placed] = []
        self._looks: list[Look] = []
        self._drawing = Drawing()
        self._pictures = self._curves = self.operations = 0

    def text(self, text: str, cm: Sequence[float], tm: Sequence[float], font: object, size: float) -> None:
        if not text:
            return
        name = str(font.get("/BaseFont", "")) if isinstance(font, dict) else ""
        height = abs(size * tm[3] * cm[3])
        halves = round(2 * height) / 2 if height < _MAX_FONT_SIZE else 0.0
        is_turned = any((tm[1], tm[2], cm[1], cm[2]))
        shown = Placed(text, *placed(tm[4], tm[5], cm), height, width(text.strip()) * height / 2, is_turned)
        self.add(shown, Look(halves, bool(_BOLD_FONT.search(name)), bool(_CODE_FONT.search(name))))

    def add(self, text: Placed, look: Look) -> None:
        self._texts.append(text)
        self._looks.append(look)

    def add_rules(self, across: Sequence[Rule], down: Sequence[Rule]) -> None:
        self._drawing.add(across, down)

    def operation(self, operator: bytes, operands: Sequence[object], cm: Sequence[float], _: object) -> None:
        if operator == b"TJ" and operands and isinstance(operands[0], list):
            shown = operands[0]  # where pypdf would set a blank before a letter that is moved closer: Y ou
            shown[:] = [x for x in shown if not (isinstance(x, int | float) and 0 < x < _MAX_KERN)]
        self._drawing.operation(operator, operands, cm)
        self._pictures += operator in _PICTURES
        self._curves += operator == b"c"
        self.operations += 1

    @property
    def is_scan(self) -> bool:
        """Whether its words, but for a stamp or a page number, are in a picture, drawn as curves, or of fonts
        that do not say which characters they are."""
        drawn = "".join(text.text for text in self._texts)
        letters = sum(map(str.isalnum, drawn))
        if sum(char == UNKNOWN or not (char.isprintable() or char.isspace()) for char in drawn) > letters:
            return True
        return letters < _STAMP_CHARS if self._pictures else not letters and self._curves > _MIN_CURVES

    def extracted(self) -> Extracted:
        """The page's lines, a table counting as one, and the look of most letters of each."""
        tables, done = self._tables(), set[int]()
        lines = [_Raw()]
        before: Placed | None = None
        for at, (text, look) in enumerate(zip(self._texts, self._looks, strict=True)):
            last, table = lines[-1], tables.get(at)
            if table is not None and (before is None or text.text.strip()):  # else the preceding text's break
                if id(table) not in done:
                    lines[-1:] = [*([last] if last.text else []), _Raw(table), _Raw()]
                done.add(id(table))
                before = None
            elif before is not None or text.text.strip():  # no breaks after a table
                first, *others = text.text.split("\n")
                if before is not None and last.text:
                    _separate(lines, text, before)
                lines[-1].text += first
                lines[-1].looks[look] += len(first.strip())
                lines += [_Raw(other, Counter({look: len(other.strip())})) for other in others]
                before = text if text.text.strip() else before
        return _clean(lines)

    def _tables(self) -> dict[int, Table]:
        """The table of each text that is in one, by the text's index."""
        tables: dict[int, Table] = {}
        for grid in self._drawing.grids() if self._texts else ():
            places = {at: cell for at, text in enumerate(self._texts) if (cell := grid.place(text))}
            cells = grid.cells((self._texts[at], cell) for at, cell in places.items())
            used = {cell: text for cell, texts in cells.items() if (text := _cell(texts, grid.widths[cell]))}
            if used and (rows := grid.rows(used)):
                tables |= dict.fromkeys(places, Table.of(*rows, grid.edges))
        return tables


def _separate(lines: list[_Raw], text: Placed, before: Placed) -> None:
    """Separate the last line from the text that is about to be appended. pypdf appends a cell's next line, or
    the first of the next row, to the same line when another cell lies between them in height."""
    line = lines[-1]
    is_glued = not (line.text[-1:].isspace() or text.text[:1].isspace() or text.is_turned)
    if is_glued and text.x <= before.x and text.y < before.y - _LINE_STEP * text.size:
        if before.x - text.x > _SAME_CELL * text.size:
            lines.append(_Raw())
        else:
            line.text = continued(line.text, text.text)
    elif text.x > before.x + _WIDTH_SHARE * before.width + _WIDE_GAP * text.size:
        line.columns.add(round(text.x / SAME_PLACE))


def _cell(texts: Sequence[Placed], cell_width: float) -> str:
    """Join a cell's texts. Ideographs continue in the next line without a blank, unless the line had room."""
    cell, filled = "", 0.0
    for before, text in zip([None, *texts], texts, strict=False):
        words = " ".join(as_typed(text.text).split())
        if not words or before is None or not cell:
            cell += words
        elif text.y < before.y - _LINE_STEP / 2 * text.size:
            has_room = filled + _MIN_ROOM * text.size + _PADDING < cell_width
            cell = f"{cell} " if has_room and _IDEOGRAPH.match(cell[-1]) else continued(cell, words)
            cell, filled = cell + words, 0.0
        else:
            is_apart = before.text[-1:].isspace() or text.text[:1].isspace()
            cell += f" {words}" if is_apart else words
        filled += text.width
    return cell


def _clean(lines: Sequence[_Raw]) -> Extracted:
    """Clean the lines and mark rows: lines with two texts or more that begin where those of two others do."""
    columns = Counter(column for line in lines for column in line.columns)
    cleaned: list[str] = []
    looks: dict[str, Look] = {}
    for line in lines:
        parts: list[str] = [line.text] if isinstance(line.text, Table) else _lines(line.text)
        if sum(columns[column] >= _MIN_ROWS for column in line.columns) >= MIN_COLUMNS - 1:
            parts = [*map(Row, parts)]
        cleaned += parts
        looks |= {part: line.looks.most_common(1)[0][0] for part in parts if part and line.looks}
    return Extracted(cleaned, looks)


def read_page(page: pypdf.PageObject) -> Extracted:
    drawn = DrawnPage()
    page.extract_text(visitor_text=drawn.text, visitor_operand_before=drawn.operation)
    is_scan = drawn.is_scan or (not drawn.operations and is_damaged(page))
    return drawn.extracted()._replace(is_scan=is_scan)


PARAGRAPH_END = re.compile(r"[。！？；：.!?;:”」』）)]\s*$")
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_BULLET = re.compile("[\uf000-\uf0ff•●○■□▪▫◦‣⁃]\\s*")  # the range is that of symbol fonts
_FULL_LINE_SHARE = 0.7
_COLUMN_SHARE = 0.8  # of the page's widest line; a wider line ends a column
_COLUMN_LINES, _COLUMN_WIDTH = 5, 24  # at least; with fewer or shorter lines it may be a verse or a list
_MIN_FULL_SHARE, _MIN_BROKEN_SHARE = 0.6, 0.5  # of a column's lines, of full ones without a sentence's end
_EVEN_LINE_SHARE = 0.9  # of the column's width, which lines of ideographs fill at least
_LABELLED = re.compile(r"[^\W\d][^:：。，,]{0,20}(?<!\d)[:：]\s?\S")
FIGURE = re.compile(r"[-+]?[¥￥$€£]?\d[\d,.]*[^\W\d]{0,2}%?|[¥￥$€£]")
_AMOUNT = re.compile(r"\d\.\d\d$")
_MIN_CELLS, _MAX_HEADER_ROWS = 4, 3
MIN_COLUMNS, _MIN_ROWS = 3, 3
_DASHES = "-–—"
_LINE_STEP = 0.9  # of the font size, from one line down to the next
SAME_PLACE = 3.0  # points
_MIN_ROOM, _PADDING = 1.5, 12.0  # of the font size, at a line's end; points, in a cell
_SAME_CELL = 3.0  # of the font size: how much further left a line of a centred cell may begin
_WIDE_GAP, _WIDTH_SHARE = 1.5, 0.9  # of the font size; of a text's estimated width


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in as_typed(text).split("\n"))
    return [_BULLET.sub("- ", line, count=1) if _BULLET.match(line) else line for line in lines]


def full_widths(lines: Sequence[str]) -> list[float]:
    """How wide each line must be to count as full: nearly as wide as the page's widest, or, in a two-column
    layout, as the column's. A title or an abstract over both is twice as wide as any of their lines. Rows of
    a table, and lines before them, are never full."""
    widths = [0 if isinstance(line, Table) else width(line) for line in lines]
    widest = max(widths, default=0)
    full = [_FULL_LINE_SHARE * widest] * len(lines)
    rows = _rows_of_words(lines) | {at for at, line in enumerate(lines) if isinstance(line, Row)}
    for is_narrow, places in groupby(range(len(lines)), lambda at: widths[at] < _COLUMN_SHARE * widest):
        stretch = [*places]
        column = [lines[at] for at in stretch if lines[at] and at not in rows]
        edge = sorted(map(width, column))[len(column) * 9 // 10] if column else 0  # without outliers
        if is_narrow and _is_column(column, edge):
            for at in (at for at in stretch if _COLUMN_SHARE * widths[at] <= edge):
                full[at] = _FULL_LINE_SHARE * edge
    return [math.inf if {at, at + 1} & rows else width for at, width in enumerate(full)]


def _is_column(lines: Sequence[str], column: int) -> bool:
    """Whether narrow lines are wrapped prose: most are as wide as the column and break off in mid-sentence.
    Those of a verse, a list or a form end where a thought does, or differ in width."""
    if len(lines) < _COLUMN_LINES or column < _COLUMN_WIDTH:
        return False
    pairs = [*pairwise(lines)]
    full = [pair for pair in pairs if width(pair[0]) >= _FULL_LINE_SHARE * column]
    ending = [pair for pair in full if not PARAGRAPH_END.search(pair[0])]
    broken = sum(_breaks_off(*pair, column) for pair in ending)
    return len(full) >= _MIN_FULL_SHARE * len(pairs) and broken >= max(2, _MIN_BROKEN_SHARE * len(ending))


def _breaks_off(line: str, following: str, column: int) -> bool:
    """Whether a line seems to break off in mid-sentence: before a lowercase letter, or between two ideographs
    at the column's edge."""
    if _IDEOGRAPH.match(line[-1]):
        return bool(_IDEOGRAPH.match(following[0])) and width(line) >= _EVEN_LINE_SHARE * column
    return following[0].islower()


def _rows_of_words(lines: Sequence[str]) -> set[int]:
    """The table rows in a script without blanks between words: consecutive lines with equally many cells that
    do not end a sentence."""
    rows: set[int] = set()
    for count, places in groupby(range(len(lines)), lambda at: _columns(lines[at])):
        run = [*places]
        if count >= MIN_COLUMNS and len(run) >= _MIN_ROWS:
            rows.update(run)
    return rows


def _columns(line: str) -> int:
    cells = line.split()
    worded = sum(bool(CJK.search(cell)) for cell in cells)
    return len(cells) if 2 * worded > len(cells) and not line.endswith("。") else 0


def is_row(line: str, following: str) -> bool:
    """Whether it is a row of a table (half of the cells of this line or the next are figures) or of a form
    (both lines begin with a label and a colon, unlike prose, or the first ends with an amount)."""
    if _LABELLED.match(following) and (_LABELLED.match(line) or _AMOUNT.search(line)):
        return True
    return any(
        len(cells) >= _MIN_CELLS and 2 * sum(map(bool, map(FIGURE.fullmatch, cells))) >= len(cells)
        for cells in (line.split(), [] if PARAGRAPH_END.search(following) else following.split())
    )


def continued(line: str, following: str) -> str:
    if line.endswith("-") and line[-2:-1].isalpha() and following[0].isalpha():
        return line[:-1] if following[0].islower() else line
    in_number = line[-1] in _DASHES and line[-2:-1].isalnum() and following[0].isdigit()
    return line if in_number or CJK.match(line[-1]) or CJK.match(following[0]) else f"{line} "


# Removes running heads, footers and page numbers, which would otherwise end up in the middle of sentences
# that continue on the next page.

_EDGE_LINES, _LINE_CHARS = 2, 100
_MIN_PAGES = 4  # fewer say little about what repeats
_PAGE_NUMBER_LINE = re.compile(
    r"\W*(?:第|page)?\s*\d{1,3}\s*页?(?:\s*(?:/|of|，?\s*共)\s*\d{1,3}\s*页?)?\W*", re.IGNORECASE
)
_REPEATED_SHARE, _NUMBERED_SHARE = 0.6, 0.5
_MAX_NUMBERS = 4  # in a line that counts the pages: chapter 2.1, page 7 of 90
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")
_MIN_RUNNING, _MAX_PAGES_APART, _MARGIN_LINES = 3, 2, 3  # pages that begin alike, in a book every second
_OWN_NUMBER = re.compile(r"^(?:\d{1,4}|[ivxlc]{1,7})\s+|\s+(?:\d{1,4}|[ivxlc]{1,7})$")


def without_margins(pages: Sequence[list[str]], titles: Sequence[set[str]]) -> list[list[str]]:
    """Removes lines with which most pages begin or end, and lines that count the pages and are otherwise
    equal on several pages, unless they are titles ("Lesson 3") or all that a page has; of a table, one copy
    stays. With few pages, removes only lines that are on each of them, except for one copy, and bare page
    numbers."""
    edges = [_edges(page) for page in pages]
    has_few = len(pages) < _MIN_PAGES
    margins = {*(_on_each if has_few else _repeated)(pages, edges)}
    counting = {*_repeated_tables(pages)}
    for number, index in _numbered(pages, edges):
        line = pages[number][index]
        if _PAGE_NUMBER_LINE.fullmatch(line):
            margins.add((number, index))
        elif not has_few and line not in titles[number]:
            counting.add((number, index))
    both = margins | counting
    left = [_without(page, at, both) or _without(page, at, margins) for at, page in enumerate(pages)]
    for _ in range(0 if has_few else _MARGIN_LINES):
        running = {*_running(left, titles)}
        left = [_without(page, number, running) for number, page in enumerate(left)]
    return left


def _running(pages: Sequence[list[str]], titles: Sequence[set[str]]) -> Iterator[tuple[int, int]]:
    """Page and line of what begins or ends several pages close together, but for the page's number, such as
    a chapter's name. One copy stays, unless it repeats the end of a line above: the chapter's title."""
    places: dict[tuple[bool, str], list[tuple[int, int]]] = defaultdict(list)
    for number, page in enumerate(pages):
        filled = [index for index, line in enumerate(page) if line]
        for index in (filled[0], filled[-1]) if len(filled) > 1 else ():
            line = page[index]
            form = line if line in titles[number] else _OWN_NUMBER.sub("", line)
            if page.count(line) == 1 and not isinstance(line, Table) and re.search(r"[^\W\d_]", form):
                places[index == filled[0], form].append((number, index))
    for (_, form), same in places.items():
        apart = [at for at, (a, b) in enumerate(pairwise(same), start=1) if b[0] - a[0] > _MAX_PAGES_APART]
        for start, end in pairwise([0, *apart, len(same)]):
            above = chain.from_iterable(pages[max(0, same[start][0] - _MAX_PAGES_APART) : same[start][0]])
            is_title = any(line.endswith(form) for line in above)
            yield from same[start + (not is_title) : end] if end - start >= _MIN_RUNNING else ()


def _without(page: Sequence[str], number: int, margins: set[tuple[int, int]]) -> list[str]:
    lines = [line for index, line in enumerate(page) if (number, index) not in margins]
    return lines if any(lines) else []


def _repeated_tables(pages: Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """Page and line of tables, equal but for page numbers, at an edge of most pages; the first is kept."""
    places: dict[tuple[str, bool], list[tuple[int, int]]] = defaultdict(list)
    for number, page in enumerate(pages):
        filled = [index for index, line in enumerate(page) if line]
        for index in {*filled[:1], *filled[-1:]}:
            if isinstance(table := page[index], Table):
                counts = (each for each in _NUMBER.finditer(table) if int(each[0]) == number + 1)
                forms = {str(table), *(f"{table[: each.start()]}#{table[each.end() :]}" for each in counts)}
                for form in forms:
                    places[form, index == filled[0]].append((number, index))
    for same in places.values():
        if len(same) > 1 and len(same) >= _REPEATED_SHARE * len(pages):
            yield from same[1:]


def _edges(page: Sequence[str]) -> set[int]:
    filled = [index for index, line in enumerate(page) if line]
    edges = (*filled[:_EDGE_LINES], *filled[-_EDGE_LINES:])
    return {
        index
        for index in edges
        if len(page[index]) <= _LINE_CHARS
        and not isinstance(page[index], Table)
        and page.count(page[index]) == 1  # else it is one of many answers, or a table row
    }


def _on_each(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Page and line of what is on every page; a header is kept on the first page, a footer on the last."""
    texts = [{page[index] for index in edge} for page, edge in zip(pages, edges, strict=True)]
    same = set.intersection(*texts) if len(pages) > 1 else set()
    for number, (page, edge) in enumerate(zip(pages, edges, strict=True)):
        for index in edge:
            stays_on = 0 if 2 * index < len(page) else len(pages) - 1
            if page[index] in same and number != stays_on:
                yield number, index


def _repeated(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Page and line of what is on most pages, word for word."""
    counts = Counter(
        text for page, edge in zip(pages, edges, strict=True) for text in {page[index] for index in edge}
    )
    for number, edge in enumerate(edges):
        yield from (
            (number, index)
            for index in edge
            if counts[pages[number][index]] >= _REPEATED_SHARE * len(pages)
            and not _NUMBER.fullmatch(pages[number][index])  # a figure that happens to repeat
        )


def _numbered(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> list[tuple[int, int]]:
    """Page and line of the lines that count the pages."""
    numbered = [
        (value - number, number, index)
        for number, edge in enumerate(edges)
        for index in edge
        for value in _numbers(pages[number][index])
    ]
    firsts = Counter(first for first, _ in {(first, number) for first, number, _ in numbered})
    first, count = firsts.most_common(1)[0] if firsts else (0, 0)
    if count < _NUMBERED_SHARE * len(pages):
        return []
    counting = [(number, index) for start, number, index in numbered if start == first]
    forms = Counter(_NUMBER.sub("0", pages[number][index]) for number, index in counting)
    return [place for place in counting if forms[_NUMBER.sub("0", pages[place[0]][place[1]])] > 1]


def _numbers(line: str) -> set[int]:
    numbers = _NUMBER.findall(line)
    return {*map(int, numbers)} if len(numbers) <= _MAX_NUMBERS else set()
