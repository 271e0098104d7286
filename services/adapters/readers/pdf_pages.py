"""The lines of a PDF's pages as they are drawn, with the look of their letters: which of them are rows of a
table, which fill their column, so that a sentence may go on in the next one, and which are margins.

Tables are known by the rules around their cells; without rules they are lines with their cells in order.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import pypdf
from pypdf.generic import DictionaryObject
from pypdf.generic._font import Font

from core.text import scrub
from services.adapters.readers.outline import Drawing, Placed, placed, spanned_table

_LARGEST_LETTERS = 10_000
_BOLD_FONT = re.compile("bold|black|heavy|simhei|heiti", re.IGNORECASE)
_MAX_FONT_ENTRIES = 1_000_000  # characters and widths of the fonts that are held, about 150 MB


@contextmanager
def fonts_read_once() -> Iterator[None]:
    """pypdf reads a font's maps again for every page that names it, which takes most of a long document's
    time, and offers no way to hold them: its constructor is replaced while one document is read."""
    read = Font.__dict__["from_font_resource"]
    fonts: dict[int, tuple[DictionaryObject, Font]] = {}  # by identity, so what it belongs to is held as well
    entries = 0

    def read_once(resource: DictionaryObject) -> Font:
        nonlocal entries
        if id(resource) not in fonts:
            font = read.__get__(None, Font)(resource)
            entries += len(font.character_map) + len(font.character_widths)
            if entries > _MAX_FONT_ENTRIES:
                fonts.clear()
                entries = len(font.character_map) + len(font.character_widths)
            fonts[id(resource)] = resource, font
        return fonts[id(resource)][1]

    try:
        setattr(Font, "from_font_resource", staticmethod(read_once))  # noqa: B010 - mypy knows it as a method
        yield
    finally:
        setattr(Font, "from_font_resource", read)  # noqa: B010


@dataclass(frozen=True, slots=True)
class Look:
    size: float = 0
    is_bold: bool = False


class Row(str):
    """A row of a table without rules: no sentence goes on from it or into it."""

    def closed(self, close: Callable[[str], str]) -> Row:
        return Row(close(self))


class Table(Row):
    """Its text, Markdown but of a form, as one of its page's lines. `edges`: where its columns begin."""

    rows: list[list[str]]
    spans: list[list[int]]
    edges: list[float]
    is_form: bool

    @classmethod
    def of(cls, rows: list[list[str]], spans: list[list[int]], edges: list[float]) -> Table:
        """Most rows of a form have a cell over several columns, and its first one is no header."""
        is_form = 2 * sum(max(row) > 1 for row in spans) > len(spans)
        form = "\n".join(" ".join(filter(None, row)) for row in rows)
        table = cls((form if is_form else spanned_table(rows, spans, _MAX_HEADER_ROWS)) + "\n")
        table.rows, table.spans, table.edges, table.is_form = rows, spans, edges, is_form
        return table

    def closed(self, close: Callable[[str], str]) -> Table:
        return Table.of([[*map(close, row)] for row in self.rows], self.spans, self.edges)


@dataclass(slots=True)
class _Raw:
    """A line while it is put together; `columns`: where texts begin behind a wide gap."""

    text: str = ""
    looks: Counter[Look] = field(default_factory=Counter)
    columns: set[int] = field(default_factory=set)


Extracted = tuple[list[str], dict[str, Look]]


class _Page:
    """What is drawn on a page, piece by piece, as pypdf hands it over: texts with the blank or the break that
    it sees beside them."""

    def __init__(self) -> None:
        self._texts: list[Placed] = []
        self._looks: list[Look] = []
        self._drawing = Drawing()

    def text(self, text: str, cm: Sequence[float], tm: Sequence[float], font: object, size: float) -> None:
        if not text:
            return
        name = str(font.get("/BaseFont", "")) if isinstance(font, dict) else ""
        height = abs(size * tm[3] * cm[3])
        halves = round(2 * height) / 2 if height < _LARGEST_LETTERS else 0.0
        x, y = placed(tm[4], tm[5], cm)
        is_turned = any((tm[1], tm[2], cm[1], cm[2]))
        self._texts.append(Placed(text, x, y, height, width(text.strip()) * height / 2, is_turned))
        self._looks.append(Look(halves, _BOLD_FONT.search(name) is not None))

    def operation(self, operator: bytes, operands: Sequence[object], cm: Sequence[float], _: object) -> None:
        self._drawing.operation(operator, operands, cm)

    def extracted(self) -> Extracted:
        """Its lines, a table one of them, and how most letters of each look."""
        tables, done = self._tables(), set[int]()
        lines = [_Raw()]
        before: Placed | None = None
        for at, (text, look) in enumerate(zip(self._texts, self._looks, strict=True)):
            last, table = lines[-1], tables.get(at)
            if table is not None and (before is None or text.text.strip()):  # else a break of the text before
                if id(table) not in done:
                    lines[-1:] = [*([last] if last.text else []), _Raw(table), _Raw()]
                done.add(id(table))
                before = None
            elif before is not None or text.text.strip():  # no breaks behind a table
                first, *others = text.text.split("\n")
                if before is not None and last.text:
                    _come_to(lines, text, before)
                lines[-1].text += first
                lines[-1].looks[look] += len(first.strip())
                lines += [_Raw(other, Counter({look: len(other.strip())})) for other in others]
                before = text if text.text.strip() else before
        return _clean(lines)

    def _tables(self) -> dict[int, Table]:
        """Of each text in a table, by its index, the table."""
        tables: dict[int, Table] = {}
        for grid in self._drawing.grids() if self._texts else ():
            places = {at: cell for at, text in enumerate(self._texts) if (cell := grid.place(text))}
            cells = grid.cells((self._texts[at], cell) for at, cell in places.items())
            said = {cell: text for cell, texts in cells.items() if (text := _cell(texts, grid.widths[cell]))}
            if said and (rows := grid.rows(said)):
                tables |= dict.fromkeys(places, Table.of(*rows, grid.edges))
        return tables


def _come_to(lines: list[_Raw], text: Placed, before: Placed) -> None:
    """What is between the last line and the text that comes to it. pypdf takes a cell's next line, or the
    first of the next row, for the same one, and glues it, where another cell is between both in height."""
    line = lines[-1]
    is_glued = not (line.text[-1:].isspace() or text.text[:1].isspace() or text.is_turned)
    if is_glued and text.x <= before.x and text.y < before.y - _LINE_STEP * text.size:
        if before.x - text.x > _SAME_CELL * text.size:
            lines.append(_Raw())
        else:
            line.text = continued(line.text, text.text)
    elif text.x > before.x + _WIDEST * before.width + _WIDE_GAP * text.size:
        line.columns.add(round(text.x / SAME_PLACE))


def _cell(texts: Sequence[Placed], cell_width: float) -> str:
    """Ideographs go on in the next line without a blank, unless there was room for more of them."""
    said, filled = "", 0.0
    for before, text in zip([None, *texts], texts, strict=False):
        words = " ".join(_as_typed(text.text).split())
        if not words or before is None or not said:
            said += words
        elif text.y < before.y - _LINE_STEP / 2 * text.size:
            has_room = filled + _LEAST_ROOM * text.size + _PADDING < cell_width
            said = f"{said} " if has_room and _IDEOGRAPH.match(said[-1]) else continued(said, words)
            said, filled = said + words, 0.0
        else:
            is_apart = before.text[-1:].isspace() or text.text[:1].isspace()
            said += f" {words}" if is_apart else words
        filled += text.width
    return said


def _clean(lines: Sequence[_Raw]) -> Extracted:
    """A row begins texts where two other lines do, twice at least."""
    columns = Counter(column for line in lines for column in line.columns)
    cleaned: list[str] = []
    looks: dict[str, Look] = {}
    for line in lines:
        parts: list[str] = [line.text] if isinstance(line.text, Table) else _lines(line.text)
        if sum(columns[column] >= _LEAST_ROWS for column in line.columns) >= LEAST_COLUMNS - 1:
            parts = [*map(Row, parts)]
        cleaned += parts
        looks |= {part: line.looks.most_common(1)[0][0] for part in parts if part and line.looks}
    return cleaned, looks


def read_page(page: pypdf.PageObject) -> Extracted:
    drawn = _Page()
    page.extract_text(visitor_text=drawn.text, visitor_operand_before=drawn.operation)
    return drawn.extracted()


PARAGRAPH_END = re.compile(r"[。！？；：.!?;:”」』）)]\s*$")
_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_BULLET = re.compile("[\uf000-\uf0ff•●○■□▪▫◦‣⁃]\\s*")  # the first are those of symbol fonts
_FULL_LINE_SHARE = 0.7
_COLUMN_SHARE = 0.8  # of the page's widest line; what is wider ends a column
_COLUMN_LINES, _COLUMN_WIDTH = 5, 24  # at least; fewer, or shorter ones, may as well be a verse or a list
_LEAST_FULL, _LEAST_GOING_ON = 0.6, 0.5  # of a column's lines, and of the full ones that end no sentence
_EVEN_LINE_SHARE = 0.9  # to which lines of ideographs fill their column
_LABELLED = re.compile(r"[^\W\d][^:：。，,]{0,20}(?<!\d)[:：]\s?\S")
FIGURE = re.compile(r"[-+]?[¥￥$€£]?\d[\d,.]*[^\W\d]{0,2}%?|[¥￥$€£]")
_AMOUNT = re.compile(r"\d\.\d\d$")
_LEAST_CELLS = 4
LEAST_COLUMNS, _LEAST_ROWS = 3, 3
_DASHES = "-–—"
_LINE_STEP = 0.9  # of the letters' size, from one line down to the next
SAME_PLACE = 3.0  # points
_LEAST_ROOM, _PADDING = 1.5, 12.0  # of the letters' size, at a line's end; points, in a cell
_SAME_CELL = 3.0  # of the letters' size: as much further left may a line of a centred cell begin
_WIDE_GAP, _WIDEST = 1.5, 0.9  # of the letters' size; of what a text seems to be wide
_MAX_HEADER_ROWS = 3


# Some fonts call a character by the radical that looks the same, or two letters by their ligature; nobody
# searches for that. Ligatures and Kangxi radicals have what is typed as their compatibility form. Below, the
# other radicals that stand for a whole character, and the dash that fonts of Chinese have for "—":
_AS_TYPED = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0x2F00, 0x2FD6), *range(0xFB00, 0xFB07))
} | str.maketrans(
    "⺁⺄⺈⺊⺍⺎⺐⺒⺓⺛⺜⺝⺞⺟⺠⺧⺩⺪⺬⺮⺶⺼⺽⻁⻄⻅⻆⻉⻋⻑⻓⻔⻗⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻪⻫⻬⻭⻮⻯⻰⻱⻲⻳―",
    "厂乙刀卜小兀尢巳幺旡日月歺母民牛王疋示竹羊肉臼虎西见角贝车長长门雨青韦页风飞食马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟—",
)


def _as_typed(text: str) -> str:
    return scrub(text).translate(_AS_TYPED)


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in _as_typed(text).split("\n"))
    return [_BULLET.sub("- ", line, count=1) if _BULLET.match(line) else line for line in lines]


def full_widths(lines: Sequence[str]) -> list[float]:
    """How wide each line must be to be a full one: nearly as the page's widest, or, in one of two columns, as
    the column's. A title or an abstract over both is twice as wide as any line of them. No width is enough
    for a row of a table, nor before one."""
    widths = [0 if isinstance(line, Table) else width(line) for line in lines]
    widest = max(widths, default=0)
    full = [_FULL_LINE_SHARE * widest] * len(lines)
    rows = _rows_of_words(lines) | {at for at, line in enumerate(lines) if isinstance(line, Row)}
    for is_narrow, places in groupby(range(len(lines)), lambda at: widths[at] < _COLUMN_SHARE * widest):
        stretch = [*places]
        column = [lines[at] for at in stretch if lines[at] and at not in rows]
        edge = sorted(map(width, column))[len(column) * 9 // 10] if column else 0  # the rest is not of it
        if is_narrow and _is_column(column, edge):
            for at in (at for at in stretch if _COLUMN_SHARE * widths[at] <= edge):
                full[at] = _FULL_LINE_SHARE * edge
    return [math.inf if {at, at + 1} & rows else width for at, width in enumerate(full)]


def _is_column(lines: Sequence[str], column: int) -> bool:
    """Whether narrow lines are wrapped prose: most are as wide as the column, and break off in a sentence.
    Those of a verse, a list or a form end where a thought does, or differ in width."""
    if len(lines) < _COLUMN_LINES or column < _COLUMN_WIDTH:
        return False
    pairs = [*pairwise(lines)]
    full = [pair for pair in pairs if width(pair[0]) >= _FULL_LINE_SHARE * column]
    ending = [pair for pair in full if not PARAGRAPH_END.search(pair[0])]
    going_on = sum(_breaks_off(*pair, column) for pair in ending)
    return len(full) >= _LEAST_FULL * len(pairs) and going_on >= max(2, _LEAST_GOING_ON * len(ending))


def _breaks_off(line: str, following: str, column: int) -> bool:
    """In mid-sentence, as far as that can be seen: before a small letter, or between two ideographs at the
    column's edge."""
    if _IDEOGRAPH.match(line[-1]):
        return bool(_IDEOGRAPH.match(following[0])) and width(line) >= _EVEN_LINE_SHARE * column
    return following[0].islower()


def _rows_of_words(lines: Sequence[str]) -> set[int]:
    """The lines of tables in a script without blanks between words: several in a row that have as many cells,
    and end no sentence."""
    rows: set[int] = set()
    for count, places in groupby(range(len(lines)), lambda at: _columns(lines[at])):
        run = [*places]
        if count >= LEAST_COLUMNS and len(run) >= _LEAST_ROWS:
            rows.update(run)
    return rows


def _columns(line: str) -> int:
    cells = line.split()
    worded = sum(bool(_CJK.search(cell)) for cell in cells)
    return len(cells) if 2 * worded > len(cells) and not line.endswith("。") else 0


def width(line: str) -> int:
    """In halves of an ideograph, which is about what a letter of another script takes."""
    return len(line) + len(_CJK.findall(line))


def is_row(line: str, following: str) -> bool:
    """Of a table (half of the cells are figures, in this line or the next), or of a form: both lines begin
    with a label and a colon, as hardly two lines of one paragraph do, or the first ends with an amount."""
    if _LABELLED.match(following) and (_LABELLED.match(line) or _AMOUNT.search(line)):
        return True
    return any(
        len(cells) >= _LEAST_CELLS and 2 * sum(map(bool, map(FIGURE.fullmatch, cells))) >= len(cells)
        for cells in (line.split(), [] if PARAGRAPH_END.search(following) else following.split())
    )


def continued(line: str, following: str) -> str:
    if line.endswith("-") and line[-2:-1].isalpha() and following[0].islower():
        return line[:-1]
    in_number = line[-1] in _DASHES and line[-2:-1].isalnum() and following[0].isdigit()
    return line if in_number or _CJK.match(line[-1]) or _CJK.match(following[0]) else f"{line} "


# The lines without running heads, footers and page numbers, which stand in the middle of sentences when
# pages are read one after the other.

_EDGE_LINES = 2
_LINE_CHARS = 100
_LEAST_PAGES = 4  # fewer tell little of what repeats
_ALONE = re.compile(
    r"\W*(?:第|page)?\s*\d{1,3}\s*页?(?:\s*(?:/|of|，?\s*共)\s*\d{1,3}\s*页?)?\W*", re.IGNORECASE
)
_REPEATED_SHARE = 0.6
_NUMBERED_SHARE = 0.5
_MAX_NUMBERS = 4  # in a line that counts the pages: chapter 2.1, page 7 of 90
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")


def without_margins(pages: Sequence[list[str]], titles: Sequence[set[str]]) -> list[list[str]]:
    """Left out are lines that most pages begin or end with, and those in which a number counts the pages and
    that are the same on several pages but for their numbers, unless they are titles ("Lesson 3") or all that
    a page has; a table stays once. Of few pages only what is on each of them, and once it stays; and lines
    that are nothing but the page's number."""
    edges = [_edges(page) for page in pages]
    has_few = len(pages) < _LEAST_PAGES
    margins = {*(_on_each if has_few else _repeated)(pages, edges)}
    counting = {*_repeated_tables(pages)}
    for number, index in _numbered(pages, edges):
        line = pages[number][index]
        if _ALONE.fullmatch(line):
            margins.add((number, index))
        elif not has_few and line not in titles[number]:
            counting.add((number, index))
    return [
        _without(page, number, margins | counting) or _without(page, number, margins)
        for number, page in enumerate(pages)
    ]


def _without(page: Sequence[str], number: int, margins: set[tuple[int, int]]) -> list[str]:
    lines = [line for index, line in enumerate(page) if (number, index) not in margins]
    return lines if any(lines) else []


def _repeated_tables(pages: Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """Page and line of tables that most pages begin or end with, but for the page's number; once it stays."""
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
        and page.count(page[index]) == 1  # else it is one of many answers, or of a table's rows
    }


def _on_each(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Page and line of what stands on every page; a head stays on the first one, a foot on the last."""
    texts = [{page[index] for index in edge} for page, edge in zip(pages, edges, strict=True)]
    same = set.intersection(*texts) if len(pages) > 1 else set()
    for number, (page, edge) in enumerate(zip(pages, edges, strict=True)):
        for index in edge:
            stays_on = 0 if 2 * index < len(page) else len(pages) - 1
            if page[index] in same and number != stays_on:
                yield number, index


def _repeated(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Page and line of what stands, word for word, on most pages."""
    counts = Counter(
        text for page, edge in zip(pages, edges, strict=True) for text in {page[index] for index in edge}
    )
    for number, edge in enumerate(edges):
        yield from (
            (number, index)
            for index in edge
            if counts[pages[number][index]] >= _REPEATED_SHARE * len(pages)
            and not _NUMBER.fullmatch(pages[number][index])  # a figure that is often the same
        )


def _numbered(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> list[tuple[int, int]]:
    """Page and line of what counts the pages."""
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
