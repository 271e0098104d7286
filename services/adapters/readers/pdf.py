"""PDF: one section per page and bookmark, its lines joined back into paragraphs.

Bookmarks are the headings. Running heads, footers and page numbers are left out. Tables are
lines with their cells in order: to find them, pdfplumber takes three times as long again as all the rest, and
it finds only those with ruled lines.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby, pairwise

import pypdf
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination

from core.errors import UnreadableDocumentError
from core.text import scrub
from services.adapters.readers.outline import Outline

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
_LEAST_PAGES = 4  # fewer tell nothing of what repeats
_REPEATED_SHARE = 0.6
_NUMBERED_SHARE = 0.5
_MAX_NUMBERS = 4  # in a line that counts the pages: chapter 2.1, page 7 of 90
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")


def without_margins(pages: Sequence[list[str]]) -> list[list[str]]:
    """Left out are lines that most pages begin or end with, and those in which a number counts the pages and
    that are the same on several pages but for their numbers."""
    if len(pages) < _LEAST_PAGES:
        return [*pages]
    edges = [_edges(page) for page in pages]
    margins = {*_repeated(pages, edges), *_numbered(pages, edges)}
    return [
        [line for index, line in enumerate(page) if (number, index) not in margins]
        for number, page in enumerate(pages)
    ]


def _edges(page: Sequence[str]) -> set[int]:
    filled = [index for index, line in enumerate(page) if line]
    edges = (*filled[:_EDGE_LINES], *filled[-_EDGE_LINES:])
    return {index for index in edges if len(page[index]) <= _LINE_CHARS}


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


class PdfReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the document's bytes
        try:
            pdf = pypdf.PdfReader(BytesIO(content))
            _unlock(pdf)
            pages = [_lines(page.extract_text()) for page in pdf.pages]
            return _sections(without_margins(pages), bookmarks(pdf))
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
# other radicals that stand for a whole character:
_AS_TYPED = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0x2F00, 0x2FD6), *range(0xFB00, 0xFB07))
} | str.maketrans(
    "⺁⺄⺈⺊⺍⺎⺐⺒⺓⺛⺜⺝⺞⺟⺠⺧⺩⺪⺬⺮⺶⺼⺽⻁⻄⻅⻆⻉⻋⻑⻓⻔⻗⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻪⻫⻬⻭⻮⻯⻰⻱⻲⻳",
    "厂乙刀卜小兀尢巳幺旡日月歺母民牛王疋示竹羊肉臼虎西见角贝车長长门雨青韦页风飞食马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟",
)


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in scrub(text).translate(_AS_TYPED).split("\n"))
    return [_BULLET.sub("- ", line, count=1) if _BULLET.match(line) else line for line in lines]


def _sections(pages: Iterable[list[str]], marks: Sequence[Bookmark]) -> list[Document]:
    outline = Outline()
    by_page: dict[int, list[Bookmark]] = defaultdict(list)
    for mark in marks:
        by_page[mark.page].append(mark)
    for index, lines in enumerate(pages):
        outline.page(index + 1)
        _page(lines, by_page.get(index, []), outline)
    return outline.finish()


def _page(lines: Sequence[str], marks: Sequence[Bookmark], outline: Outline) -> None:
    """Bookmarks whose line is not found: the first, with those inside it, heads the page from where the one
    before it ended; the others only what comes after the page."""
    full = _full_widths(lines)
    done, deepest = 0, 0
    later: list[Bookmark] = []
    for mark, extent in zip(marks, place(lines, [mark.title for mark in marks]), strict=True):
        if extent is None and mark.level <= deepest:
            later.append(mark)
            continue
        start, end = extent or (done, done)
        outline.block(_paragraphs(lines[done:start], full[done:start]))
        outline.heading(mark.level, mark.title, in_text=extent is None)
        done, deepest = end, mark.level if extent is None else 0
        later = [] if extent else later
    outline.block(_paragraphs(lines[done:], full[done:]))
    for mark in later:
        outline.heading(mark.level, mark.title, in_text=True)


def _full_widths(lines: Sequence[str]) -> list[float]:
    """How wide each line must be to be a full one: nearly as the page's widest, or, in one of two columns, as
    the column's. A title or an abstract over both is twice as wide as any line of them."""
    widths = [*map(_width, lines)]
    widest = max(widths, default=0)
    full = [_FULL_LINE_SHARE * widest] * len(lines)
    for is_narrow, places in groupby(range(len(lines)), lambda at: widths[at] < _COLUMN_SHARE * widest):
        stretch = [*places]
        column = [lines[at] for at in stretch if lines[at]]
        edge = sorted(map(_width, column))[len(column) * 9 // 10] if column else 0  # the rest is not of it
        if is_narrow and _is_column(column, edge):
            for at in (at for at in stretch if _COLUMN_SHARE * widths[at] <= edge):
                full[at] = _FULL_LINE_SHARE * edge
    return full


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


def _paragraphs(lines: Sequence[str], full: Sequence[float]) -> str:
    """A line as wide as `full` says, that ends no sentence, goes on in the next one."""
    joined = ""
    for line, following, width in zip(lines, [*lines[1:], ""], full, strict=False):
        goes_on = _width(line) >= width and following and not _PARAGRAPH_END.search(line)
        goes_on = goes_on and not _is_row(line, following)
        joined += _continued(line, following) if goes_on else f"{line}\n"
    return joined


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
    return line if _CJK.match(line[-1]) and _CJK.match(following[0]) else f"{line} "
