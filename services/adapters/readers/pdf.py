"""PDF: one section per page and heading, or over pages where the text goes on; lines joined into paragraphs.

Bookmarks are the headings; where there are none, lines in larger letters are, else those in bold, else those
that call themselves a chapter or a section. Running heads, footers and page numbers are left out. Tables are
known by the rules around their cells; without rules they are lines with their cells in order.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from itertools import dropwhile, groupby, pairwise, zip_longest

import pypdf
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination, DictionaryObject
from pypdf.generic._font import Font

from core.errors import UnreadableDocumentError
from core.text import ITEM, close_gaps, is_parted, scrub
from services.adapters.readers.outline import Drawing, Outline, Placed, placed, spanned_table

# A PDF's bookmarks as headings: on which page, how deep. Notes of a tool, so nothing in them is an error.


_MAX_TITLE_CHARS = 200
_MAX_DEPTH = 6
_WORD = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff]")
_NUMBERING = re.compile(
    r"\s*(?:第\s*[\d一二三四五六七八九十百]+\s*[章节條条篇部]|[一二三四五六七八九十]+(?=[、.．])"
    r"|(?:chapter|appendix|section|part)\s+[\dA-Z]{1,4}\b|(?:[A-Z]\.?)?\d+(?:\.\d+)*|[A-Z]\b)[\s.．、:：)）]*",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"\.(?:docx?|pptx?|xlsx?|pdf|indd)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`page` counts from 0; `level` from 1, the outermost."""

    page: int
    level: int
    title: str


def bookmarks(pdf: pypdf.PdfReader) -> list[Bookmark]:
    """In the outline's order. A title without a word (a page's number) or that names a file is none."""
    try:
        return list(_flat(pdf, pdf.outline, 1))
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return []  # a damaged outline costs nobody the document


def place(lines: Sequence[str], titles: Sequence[str]) -> list[tuple[int, int] | None]:
    """For each title in order, the lines [start, end) that say it; None where none do."""
    forms = [_forms(line) for line in lines]
    places: list[tuple[int, int] | None] = []
    at = 0
    for title in titles:
        extent = _find(forms, _forms(title), at)
        at = extent[1] if extent else at
        places.append(extent)
    return places


def _flat(pdf: pypdf.PdfReader, items: object, level: int) -> Iterator[Bookmark]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, list):
            yield from _flat(pdf, item, level + 1)
        elif isinstance(item, Destination):
            title = " ".join(scrub(str(item.title or "")).split())[:_MAX_TITLE_CHARS]
            page = pdf.get_destination_page_number(item)
            if page is not None and _WORD.search(title) and not _FILE_NAME.search(title):
                yield Bookmark(page, min(level, _MAX_DEPTH), title)


def _find(lines: Sequence[tuple[str, str]], title: tuple[str, str], at: int) -> tuple[int, int] | None:
    """A title may take two lines of the page."""
    for index in range(at, len(lines)):
        if _same(lines[index], title):
            return index, index + 1
        if index + 1 < len(lines) and lines[index][0] and title[0].startswith(lines[index][0]):
            both = (lines[index][0] + lines[index + 1][0], lines[index][1] + lines[index + 1][0])
            if _same(both, title):
                return index, index + 2
    return None


def _same(line: tuple[str, str], title: tuple[str, str]) -> bool:
    return bool(title[1]) and not {*line}.isdisjoint(title)


def _forms(text: str) -> tuple[str, str]:
    """Its letters, with and without the number that it begins with: bookmarks often lack it."""
    return _letters(text), _letters(_NUMBERING.sub("", text, count=1))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


# The lines of PDF pages without running heads, footers and page numbers, which stand in the middle of
# sentences when pages are read one after the other.


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


def without_margins(pages: Sequence[list[str]]) -> list[list[str]]:
    """Left out are lines that most pages begin or end with, and those in which a number counts the pages and
    that are the same on several pages but for their numbers. Of few pages only what is on each of them, and
    once it stays; and lines that are nothing but the page's number."""
    edges = [_edges(page) for page in pages]
    if len(pages) < _LEAST_PAGES:
        numbers = (place for place in _numbered(pages, edges) if _ALONE.fullmatch(pages[place[0]][place[1]]))
        margins = {*_on_each(pages, edges), *numbers}
    else:
        margins = {*_repeated(pages, edges), *_numbered(pages, edges)}
    return [
        [line for index, line in enumerate(page) if (number, index) not in margins]
        for number, page in enumerate(pages)
    ]


def _edges(page: Sequence[str]) -> set[int]:
    filled = [index for index, line in enumerate(page) if line]
    edges = (*filled[:_EDGE_LINES], *filled[-_EDGE_LINES:])
    return {index for index in edges if len(page[index]) <= _LINE_CHARS}


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


# Headings of a PDF without bookmarks, by the look of its lines.


_TEXT_LINES, _TEXT_SHARE = 3, 0.1  # lines in a row, and share of the letters, of running text or a table
_LARGER, _LARGEST_LETTERS = 1.1, 10_000
_TITLE_LINES = 2
_BOLD_SHARE, _HEADING_SHARE = 0.3, 0.5  # of the letters, of the lines: what is so common heads nothing
_LONGEST_HEADING = 90  # in halves of an ideograph
_BOLD_FONT = re.compile("bold|black|heavy|simhei|heiti", re.IGNORECASE)
_SAYS_SO = re.compile(
    r"(?:section|chapter|part|annex|appendix)\s+[\dA-Z]{1,4}\s*[:.–—]\s*\S"
    r"|第\s*[\d一二三四五六七八九十]{1,3}\s*(?:章|节|编|篇|部分)\s",
    re.IGNORECASE,
)
_NO_HEADING_END = re.compile(r"[。；;，,、：:]$|[a-z]{3}\.$|(?:\. ?){3}")


_MAX_FONT_ENTRIES = 1_000_000  # characters and widths of the fonts that are held, about 150 MB


@contextmanager
def _fonts_read_once() -> Iterator[None]:
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
class _Look:
    size: float = 0
    is_bold: bool = False


class _Row(str):
    """A row of a table without rules: no sentence goes on from it or into it."""

    def closed(self, close: Callable[[str], str]) -> _Row:
        return _Row(close(self))


class _Table(_Row):
    """Its text, Markdown but of a form, as one of its page's lines. `edges`: where its columns begin."""

    rows: list[list[str]]
    spans: list[list[int]]
    edges: list[float]
    is_form: bool

    @classmethod
    def of(cls, rows: list[list[str]], spans: list[list[int]], edges: list[float]) -> _Table:
        """Most rows of a form have a cell over several columns, and its first one is no header."""
        is_form = 2 * sum(max(row) > 1 for row in spans[1:]) > len(spans) - 1
        form = "\n".join(" ".join(filter(None, row)) for row in rows)
        table = cls((form if is_form else spanned_table(rows, spans, _MAX_HEADER_ROWS)) + "\n")
        table.rows, table.spans, table.edges, table.is_form = rows, spans, edges, is_form
        return table

    def closed(self, close: Callable[[str], str]) -> _Table:
        return _Table.of([[*map(close, row)] for row in self.rows], self.spans, self.edges)


@dataclass(slots=True)
class _Raw:
    """A line while it is put together; `columns`: where texts begin behind a wide gap."""

    text: str = ""
    looks: Counter[_Look] = field(default_factory=Counter)
    columns: set[int] = field(default_factory=set)


_Extracted = tuple[list[str], dict[str, _Look]]


class _Page:
    """What is drawn on a page, piece by piece, as pypdf hands it over: texts with the blank or the break that
    it sees beside them."""

    def __init__(self) -> None:
        self._texts: list[Placed] = []
        self._looks: list[_Look] = []
        self._drawing = Drawing()

    def text(self, text: str, cm: Sequence[float], tm: Sequence[float], font: object, size: float) -> None:
        if not text:
            return
        name = str(font.get("/BaseFont", "")) if isinstance(font, dict) else ""
        height = abs(size * tm[3] * cm[3])
        halves = round(2 * height) / 2 if height < _LARGEST_LETTERS else 0.0
        x, y = placed(tm[4], tm[5], cm)
        is_turned = any((tm[1], tm[2], cm[1], cm[2]))
        self._texts.append(Placed(text, x, y, height, _width(text.strip()) * height / 2, is_turned))
        self._looks.append(_Look(halves, _BOLD_FONT.search(name) is not None))

    def operation(self, operator: bytes, operands: Sequence[object], cm: Sequence[float], _: object) -> None:
        self._drawing.operation(operator, operands, cm)

    def extracted(self) -> _Extracted:
        """Its lines, a table one of them, and how most letters of each look."""
        tables, done = self._tables(), set[int]()
        lines = [_Raw()]
        before: Placed | None = None
        for at, (text, look) in enumerate(zip(self._texts, self._looks, strict=True)):
            last, table = lines[-1], tables.get(at)
            if table is not None:
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

    def _tables(self) -> dict[int, _Table]:
        """Of each text in a table, by its index, the table."""
        tables: dict[int, _Table] = {}
        for grid in self._drawing.grids() if self._texts else ():
            places = {at: cell for at, text in enumerate(self._texts) if (cell := grid.place(text))}
            cells = grid.cells((self._texts[at], cell) for at, cell in places.items())
            said = {cell: text for cell, texts in cells.items() if (text := _cell(texts))}
            if said and (rows := grid.rows(said)):
                tables |= dict.fromkeys(places, _Table.of(*rows, grid.edges))
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
            line.text = _continued(line.text, text.text)
    elif text.x > before.x + _WIDEST * before.width + _WIDE_GAP * text.size:
        line.columns.add(round(text.x / _SAME_PLACE))


def _cell(texts: Sequence[Placed]) -> str:
    said = ""
    for before, text in zip([None, *texts], texts, strict=False):
        words = " ".join(_as_typed(text.text).split())
        if not words or before is None or not said:
            said += words
        elif text.y < before.y - _LINE_STEP / 2 * text.size:
            said = _continued(said, words) + words
        else:
            is_apart = before.text[-1:].isspace() or text.text[:1].isspace()
            said += f" {words}" if is_apart else words
    return said


def _clean(lines: Sequence[_Raw]) -> _Extracted:
    """A row begins texts where two other lines do, twice at least."""
    columns = Counter(column for line in lines for column in line.columns)
    cleaned: list[str] = []
    looks: dict[str, _Look] = {}
    for line in lines:
        parts: list[str] = [line.text] if isinstance(line.text, _Table) else _lines(line.text)
        if sum(columns[column] >= _LEAST_ROWS for column in line.columns) >= _LEAST_COLUMNS - 1:
            parts = [*map(_Row, parts)]
        cleaned += parts
        looks |= {part: line.looks.most_common(1)[0][0] for part in parts if part and line.looks}
    return cleaned, looks


def _extracted(page: pypdf.PageObject) -> _Extracted:
    drawn = _Page()
    page.extract_text(visitor_text=drawn.text, visitor_operand_before=drawn.operation)
    return drawn.extracted()


def _without_gaps(pages: list[_Extracted]) -> list[_Extracted]:
    """Recognised text, that of some pages alone as well, without the blanks between its characters."""
    texts = ["\n".join(lines) for lines, _ in pages]
    whole = is_parted("\n".join(texts))
    closed: list[_Extracted] = []
    for text, (lines, looks) in zip(texts, pages, strict=True):
        close = partial(close_gaps, parted=whole or is_parted(text))
        typed = [line.closed(close) if isinstance(line, _Row) else close(line) for line in lines]
        closed.append((typed, {close(line): look for line, look in looks.items()}))
    return closed


def _with_headers(pages: Sequence[list[str]]) -> Sequence[list[str]]:
    """A table that goes on at the top of the next page has its header there as well."""
    for before, page in pairwise(pages):
        above, table = next(reversed([*filter(None, before)]), ""), next(filter(None, page), "")
        if not (isinstance(above, _Table) and isinstance(table, _Table)):
            continue
        places = zip(above.edges, table.edges, strict=False)
        same = len(above.rows[0]) == len(table.rows[0]) and all(abs(a - b) < _SAME_PLACE for a, b in places)
        if same and not above.is_form and above.rows[0] != table.rows[0]:
            rows, spans = [above.rows[0], *table.rows], [above.spans[0], *table.spans]
            page[page.index(table)] = _Table.of(rows, spans, table.edges)
    return pages


def _headings(pages: Sequence[Sequence[str]], looks: Sequence[dict[str, _Look]]) -> list[Bookmark]:
    lines = [
        (number, line, shown.get(line, _Look()))
        for number, (page, shown) in enumerate(zip(pages, looks, strict=True))
        for line in page
        if line and not isinstance(line, _Row)
    ]
    levels = _levels([(line, look) for _, line, look in lines])
    depths = [
        (levels.get(look, 0) if levels else int(bool(_SAYS_SO.match(line)))) * _may_head(line, following)
        for (_, line, look), (_, following, _) in zip(lines, [*lines[1:], (0, "", _Look())], strict=False)
    ]
    if sum(map(bool, depths)) > _HEADING_SHARE * len(lines):
        return []
    return [*_marked([(page, line) for page, line, _ in lines], depths)]


def _levels(lines: Sequence[tuple[str, _Look]]) -> dict[_Look, int]:
    """Of headings: what is larger than all running text, the largest first. Where that is a title at most,
    what is in bold comes next; elsewhere that may as well be the header of a table."""
    letters, sizes = Counter[_Look](), Counter[float]()
    for line, look in lines:
        letters[look] += len(line)
        sizes[look.size] += len(line)
    runs = [(size, len([*run])) for size, run in groupby(look.size for _, look in lines)]
    texts = {size for size, length in runs if length >= _TEXT_LINES}
    text = max((size for size in texts if sizes[size] >= _TEXT_SHARE * sizes.total()), default=0.0)
    if not text:
        return {}
    larger = sorted((size for size in sizes if size > _LARGER * text), reverse=True)[:_MAX_DEPTH]
    levels = {look: larger.index(look.size) + 1 for look in letters if look.size in larger}
    bold = _Look(text, is_bold=True)
    has_title_at_most = sum(look in levels for _, look in lines) <= _TITLE_LINES
    if has_title_at_most and 0 < letters[bold] <= _BOLD_SHARE * letters.total():
        levels[bold] = len(larger) + 1
    return levels


def _may_head(line: str, following: str) -> bool:
    """A short line with a word that ends as a heading may, and is no first row of a table."""
    if _width(line) > _LONGEST_HEADING or not _WORD.search(line) or _NO_HEADING_END.search(line):
        return False
    cells = following.split()
    return (
        len(cells) < _LEAST_COLUMNS
        or len(cells) != len(line.split())
        or not any(map(_FIGURE.fullmatch, cells))
    )


def _marked(lines: Sequence[tuple[int, str]], depths: Sequence[int]) -> Iterator[Bookmark]:
    """A heading may take two lines."""
    for (page, depth), group in groupby(zip(lines, depths, strict=True), lambda each: (each[0][0], each[1])):
        titles = [line for (_, line), _ in group]
        if len(titles) == _TITLE_LINES and not _begins(titles[1]):
            titles = [_continued(*titles) + titles[1]]
        yield from (Bookmark(page, depth, title[:_MAX_TITLE_CHARS]) for title in titles if depth)


_PARAGRAPH_END = re.compile(r"[。！？；：.!?;:”」』）)]\s*$")
_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_BULLET = re.compile("[\uf000-\uf0ff•●○■□▪▫◦‣⁃]\\s*")  # the first are those of symbol fonts
_FULL_LINE_SHARE = 0.7
_COLUMN_SHARE = 0.8  # of the page's widest line; what is wider ends a column
_COLUMN_LINES, _COLUMN_WIDTH = 5, 24  # at least; fewer, or shorter ones, may as well be a verse or a list
_LEAST_FULL, _LEAST_GOING_ON = 0.6, 0.5  # of a column's lines, and of the full ones that end no sentence
_EVEN_LINE_SHARE = 0.9  # to which lines of ideographs fill their column
_LABELLED = re.compile(r"[^\W\d][^:：。，,]{0,20}(?<!\d)[:：]\s?\S")
_FIGURE = re.compile(r"[-+]?[¥￥$€£]?\d[\d,.]*[^\W\d]{0,2}%?|[¥￥$€£]")
_AMOUNT = re.compile(r"\d\.\d\d$")
_LEAST_CELLS = 4
_LEAST_COLUMNS, _LEAST_ROWS = 3, 3
_ARTICLE = re.compile(r"第[\d一二三四五六七八九十百]{1,5}条[\s：:]")
_DASHES = "-–—"
_OPEN_END = re.compile(r"[,;:，、；：]$")
_LEAST_PROSE = 3  # lines that go on in the next one, of the last
_PAGE_LINES = 60
_LINE_STEP = 0.9  # of the letters' size, from one line down to the next
_SAME_PLACE = 3.0  # points
_SAME_CELL = 3.0  # of the letters' size: as much further left may a line of a centred cell begin
_WIDE_GAP, _WIDEST = 1.5, 0.9  # of the letters' size; of what a text seems to be wide
_MAX_HEADER_ROWS = 3
_NOTE_SIZE = 0.93  # of the text's
_NOTE = re.compile(r"[\[【（(]?(\d{1,3})|[*†‡§¹²³①-⑳]|注")


class PdfReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the document's bytes
        try:
            pdf = pypdf.PdfReader(BytesIO(content))
            _unlock(pdf)
            with _fonts_read_once():
                extracted = _without_gaps([*map(_extracted, pdf.pages)])
            pages = _with_headers(without_margins([lines for lines, _ in extracted]))
            looks = [shown for _, shown in extracted]
            return _sections(pages, looks, bookmarks(pdf) or _headings(pages, looks))
        except (PyPdfError, DependencyError) as error:
            raise UnreadableDocumentError(
                "The file is not a valid PDF document: print it to a PDF again and add that."
            ) from error


def _unlock(pdf: pypdf.PdfReader) -> None:
    """Many PDFs are locked with an empty password, against printing only."""
    if not pdf.is_encrypted:
        return
    try:
        unlocked = bool(pdf.decrypt(""))
    except (DependencyError, PyPdfError, NotImplementedError):
        unlocked = False
    if not unlocked:
        raise UnreadableDocumentError(
            "The PDF is protected by a password: save it without one and add that.", code="encrypted"
        )


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


@dataclass(frozen=True, slots=True)
class _Line:
    """`full`: as wide as this, it may go on in the next line."""

    text: str
    page: int
    full: float = math.inf

    def goes_on_in(self, following: str) -> bool:
        """Whether both are of one paragraph: a full line goes on, unless it ends a sentence."""
        if not following or _width(self.text) < self.full or _PARAGRAPH_END.search(self.text):
            return False
        return not _begins(following) and not _is_row(self.text, following)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Lines of a page down to a heading, or to its end. `in_text`: the heading is one of the lines."""

    lines: list[_Line]
    heading: Bookmark | None = None
    in_text: bool = False


def _sections(
    pages: Sequence[list[str]], looks: Sequence[dict[str, _Look]], marks: Sequence[Bookmark]
) -> list[Document]:
    body = _Body()
    by_page: dict[int, list[Bookmark]] = defaultdict(list)
    for mark in marks:
        by_page[mark.page].append(mark)
    text_size = _text_size(pages, looks)
    for index, lines in enumerate(pages):
        filled = _without_blank_ends(lines)
        notes, page = _first_note(filled, looks[index], text_size), _set(filled, index + 1)
        body.page(index + 1, [*_stretches(page[:notes], by_page.get(index, []))], page[notes:])
    return body.finish()


class _Body:
    """Page after page: where one goes on with the text of the one before, both are one section."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._lines: list[_Line] = []  # since the last heading, or the last page that did not go on
        self._notes: list[_Line] = []  # at the foot of the page so far

    def page(self, number: int, stretches: Sequence[_Stretch], notes: list[_Line]) -> None:
        first = stretches[0].lines
        if _goes_over(self._lines, first):
            is_cut = self._lines[-1].goes_on_in(first[0].text)
            at = _first_end(first) if is_cut else 0  # notes come behind the sentence
            self._lines += _one_after_the_other(first[:at], self._notes)
            stretches = [replace(stretches[0], lines=first[at:]), *stretches[1:]]
            self._notes = []
        else:
            self._end()
            self._outline.page(number)
        for stretch in stretches:
            self._lines += stretch.lines
            if stretch.heading:
                self._end()
                self._outline.heading(stretch.heading.level, stretch.heading.title, in_text=stretch.in_text)
        self._notes = notes

    def finish(self) -> list[Document]:
        self._end()
        return self._outline.finish()

    def _end(self) -> None:
        self._outline.block(*_joined(_one_after_the_other(self._lines, self._notes)))
        self._lines, self._notes = [], []


def _without_blank_ends(lines: Sequence[str]) -> Sequence[str]:
    filled = [at for at, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _text_size(pages: Sequence[Sequence[str]], looks: Sequence[dict[str, _Look]]) -> float:
    """That of most letters."""
    sizes = Counter[float]()
    for lines, shown in zip(pages, looks, strict=True):
        for line in (line for line in lines if not isinstance(line, _Table)):
            sizes[shown.get(line, _Look()).size] += len(line)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def _first_note(lines: Sequence[str], shown: dict[str, _Look], text_size: float) -> int:
    """Where a page's footnotes begin: lines in smaller letters down to its end, from the first with a mark.
    Numbers count them; those of code or a table's rows do not."""
    at = first = len(lines)
    while at and 0 < shown.get(lines[at - 1], _Look()).size < _NOTE_SIZE * text_size:
        at -= 1
        first = at if _NOTE.match(lines[at]) else first
    numbers = [int(mark[1]) for line in lines[first:] if (mark := _NOTE.match(line)) and mark[1]]
    count = all(following == number + 1 for number, following in pairwise(numbers))
    return first if at and count else len(lines)  # nothing above them is no page with notes


def _set(lines: Sequence[str], page: int) -> list[_Line]:
    return [_Line(text, page, full) for text, full in zip(lines, _full_widths(lines), strict=True)]


def _stretches(lines: Sequence[_Line], marks: Sequence[Bookmark]) -> Iterator[_Stretch]:
    """Bookmarks whose line is not found: the first, with those inside it, heads the page from where the one
    before it ended; the others only what comes after the page."""
    done, deepest = 0, 0
    later: list[Bookmark] = []
    places = place([line.text for line in lines], [mark.title for mark in marks])
    for mark, extent in zip(marks, places, strict=True):
        if extent is None and mark.level <= deepest:
            later.append(mark)
            continue
        start, end = extent or (done, done)
        yield _Stretch([*lines[done:start]], mark, in_text=extent is None)
        done, deepest = end, mark.level if extent is None else 0
        later = [] if extent else later
    yield _Stretch([*lines[done:]])
    yield from (_Stretch([], mark, in_text=True) for mark in later)


def _goes_over(before: Sequence[_Line], page: Sequence[_Line]) -> bool:
    """Whether a page's text goes on with that before: in mid-sentence, in a list, or in an article of a law.
    Of a page with few lines of prose, as a slide, it is less sure than from line to line of one page."""
    if not before or not page or math.isinf(page[0].full):
        return False
    before = before[-_PAGE_LINES:]
    last, first = before[-1], page[0].text
    if _OPEN_END.search(last.text):
        return True
    if last.goes_on_in(first):
        prose = sum(line.goes_on_in(following.text) for line, following in pairwise(before))
        return first[0].islower() or prose >= _LEAST_PROSE
    item = next((line.text for line in reversed(before) if _begins(line.text)), "")
    return bool(_ARTICLE.match(item)) and not _begins(first)


def _first_end(lines: Sequence[_Line]) -> int:
    """How many lines the first paragraph has."""
    pairs = enumerate(pairwise(lines), start=1)
    return next((at for at, (line, after) in pairs if not line.goes_on_in(after.text)), len(lines))


def _one_after_the_other(lines: Sequence[_Line], notes: Sequence[_Line]) -> list[_Line]:
    """No sentence goes on from the one into the other."""
    return [
        line for part in (lines, notes) if part for line in (*part[:-1], replace(part[-1], full=math.inf))
    ]


def _joined(lines: Sequence[_Line]) -> tuple[str, list[tuple[int, int]]]:
    """The paragraphs, and where in them which page begins."""
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    length = 0
    filled = [*dropwhile(lambda line: not line.text, lines)]
    for line, following in zip_longest(filled, filled[1:]):
        if not starts or starts[-1][1] != line.page:
            starts.append((length, line.page))
        goes_on = following is not None and line.goes_on_in(following.text)
        parts.append(_continued(line.text, following.text) if goes_on else f"{line.text}\n")
        length += len(parts[-1])
    return "".join(parts), starts


def _full_widths(lines: Sequence[str]) -> list[float]:
    """How wide each line must be to be a full one: nearly as the page's widest, or, in one of two columns, as
    the column's. A title or an abstract over both is twice as wide as any line of them. No width is enough
    for a row of a table, nor before one."""
    widths = [0 if isinstance(line, _Table) else _width(line) for line in lines]
    widest = max(widths, default=0)
    full = [_FULL_LINE_SHARE * widest] * len(lines)
    rows = _rows_of_words(lines) | {at for at, line in enumerate(lines) if isinstance(line, _Row)}
    for is_narrow, places in groupby(range(len(lines)), lambda at: widths[at] < _COLUMN_SHARE * widest):
        stretch = [*places]
        column = [lines[at] for at in stretch if lines[at] and at not in rows]
        edge = sorted(map(_width, column))[len(column) * 9 // 10] if column else 0  # the rest is not of it
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
    full = [pair for pair in pairs if _width(pair[0]) >= _FULL_LINE_SHARE * column]
    ending = [pair for pair in full if not _PARAGRAPH_END.search(pair[0])]
    going_on = sum(_breaks_off(*pair, column) for pair in ending)
    return len(full) >= _LEAST_FULL * len(pairs) and going_on >= max(2, _LEAST_GOING_ON * len(ending))


def _breaks_off(line: str, following: str, column: int) -> bool:
    """In mid-sentence, as far as that can be seen: before a small letter, or between two ideographs at the
    column's edge."""
    if _IDEOGRAPH.match(line[-1]):
        return bool(_IDEOGRAPH.match(following[0])) and _width(line) >= _EVEN_LINE_SHARE * column
    return following[0].islower()


def _begins(line: str) -> bool:
    """Whether the line's number says that something begins: 一、, （一）, 第三条, "1. "."""
    return bool(ITEM.match(line) or _ARTICLE.match(line))


def _rows_of_words(lines: Sequence[str]) -> set[int]:
    """The lines of tables in a script without blanks between words: several in a row that have as many cells,
    and end no sentence."""
    rows: set[int] = set()
    for count, places in groupby(range(len(lines)), lambda at: _columns(lines[at])):
        run = [*places]
        if count >= _LEAST_COLUMNS and len(run) >= _LEAST_ROWS:
            rows.update(run)
    return rows


def _columns(line: str) -> int:
    cells = line.split()
    worded = sum(bool(_CJK.search(cell)) for cell in cells)
    return len(cells) if 2 * worded > len(cells) and not line.endswith("。") else 0


def _width(line: str) -> int:
    """In halves of an ideograph, which is about what a letter of another script takes."""
    return len(line) + len(_CJK.findall(line))


def _is_row(line: str, following: str) -> bool:
    """Of a table (half of the cells are figures, in this line or the next), or of a form: both lines begin
    with a label and a colon, as hardly two lines of one paragraph do, or the first ends with an amount."""
    if _LABELLED.match(following) and (_LABELLED.match(line) or _AMOUNT.search(line)):
        return True
    return any(
        len(cells) >= _LEAST_CELLS and 2 * sum(map(bool, map(_FIGURE.fullmatch, cells))) >= len(cells)
        for cells in (line.split(), [] if _PARAGRAPH_END.search(following) else following.split())
    )


def _continued(line: str, following: str) -> str:
    if line.endswith("-") and line[-2:-1].isalpha() and following[0].islower():
        return line[:-1]
    in_number = line[-1] in _DASHES and line[-2:-1].isalnum() and following[0].isdigit()
    return line if in_number or _CJK.match(line[-1]) or _CJK.match(following[0]) else f"{line} "
