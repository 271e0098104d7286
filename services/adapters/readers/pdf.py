"""PDF: one section per page and heading, or across pages if the text continues; lines joined to paragraphs.

Bookmarks are the headings; without any, lines in larger type are, else bold ones, else those that begin with
"Chapter", 一、 and the like. Running heads, footers and page numbers are left out.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from io import BytesIO
from itertools import dropwhile, groupby, pairwise, zip_longest

import pypdf
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pypdf.errors import DependencyError, PyPdfError

from core.errors import UnreadableDocumentError
from core.text import ITEM, close_gaps, is_spaced_out
from services.adapters.readers.outline import Outline, width
from services.adapters.readers.pdf_pages import (
    FIGURE,
    MIN_COLUMNS,
    PARAGRAPH_END,
    SAME_PLACE,
    Extracted,
    Look,
    Row,
    Table,
    continued,
    full_widths,
    is_row,
    read_page,
    without_margins,
)
from services.adapters.readers.pdf_parts import (
    FAULTS,
    MAX_DEPTH,
    MAX_TITLE_CHARS,
    WORD,
    Bookmark,
    bookmarks,
    cached_fonts,
    filled_fields,
)
from services.adapters.readers.scans import laid_out
from services.adapters.readers.text import heading_levels, place, without_contents
from services.knowledge.parsing.pieces import Scans

# Headings of a PDF without bookmarks, by the appearance of its lines.


_TEXT_LINES, _TEXT_SHARE = 3, 0.1  # consecutive lines, and share of letters, of running text or a table
_LARGER, _TITLE_LINES, _MAX_TITLE_LINES = 1.1, 2, 5
_BOLD_SHARE, _HEADING_SHARE = 0.3, 0.5  # of the letters, of the lines: anything as common is not a heading
_MAX_HEADING_WIDTH = 90  # in half-widths of an ideograph
_NOT_A_HEADING_END = re.compile(r"[。；;，,、：:]$|[a-z]{3}\.$|(?:\. ?){3}")


def _headings(pages: Sequence[Sequence[str]], looks: Sequence[dict[str, Look]]) -> list[Bookmark]:
    lines = [
        (number, line, shown.get(line, Look()))
        for number, (page, shown) in enumerate(zip(pages, looks, strict=True))
        for line in page
        if line and not isinstance(line, Row)
    ]
    levels = _levels([(line, look) for _, line, look in lines])
    has_title_at_most = _is_title_at_most([look in levels for _, _, look in lines])
    worded = heading_levels([line for _, line, _ in lines], are_lines=True) if has_title_at_most else {}
    below = max(levels.values(), default=0)
    depths = [
        (levels.get(look, 0) or (at in worded and below + worded[at]))
        * _may_be_heading(line, lines[at + 1][1] if at + 1 < len(lines) else "")
        for at, (_, line, look) in enumerate(lines)
    ]
    if sum(map(bool, depths)) > _HEADING_SHARE * len(lines):
        return []
    return [*_marked([(page, line) for page, line, _ in lines], depths)]


def _levels(lines: Sequence[tuple[str, Look]]) -> dict[Look, int]:
    """The levels of headings: sizes larger than all running text, the largest first. If those are no more
    than a title, bold text comes next; otherwise bold may just as well be a table's header."""
    letters, sizes = Counter[Look](), Counter[float]()
    for line, look in lines:
        letters[look] += len(line)
        sizes[look.size] += len(line)
    runs = [(size, len([*run])) for size, run in groupby(look.size for _, look in lines)]
    long = [size for size, length in runs if length >= _TEXT_LINES]
    has_long_title = bool(runs) and _TEXT_LINES <= runs[0][1] <= _MAX_TITLE_LINES
    texts = {*(long[1:] if has_long_title else long)} or {*long}
    text = max((size for size in texts if sizes[size] >= _TEXT_SHARE * sizes.total()), default=0.0)
    if not text:
        return {}
    larger = sorted(_title_sizes(lines, _LARGER * text), reverse=True)[:MAX_DEPTH]
    levels = {look: larger.index(look.size) + 1 for look in letters if look.size in larger}
    bold = Look(text, is_bold=True)
    has_title_at_most = _is_title_at_most([look in levels for _, look in lines])
    if has_title_at_most and 0 < letters[bold] <= _BOLD_SHARE * letters.total():
        levels[bold] = len(larger) + 1
    return levels


def _is_title_at_most(marked: Sequence[bool]) -> bool:
    """Whether no more lines than a title's are marked: two, or some more together."""
    runs = sum(is_marked for is_marked, _ in groupby(marked))
    return sum(marked) <= (_MAX_TITLE_LINES if runs == 1 else _TITLE_LINES)


def _title_sizes(lines: Sequence[tuple[str, Look]], above: float) -> list[float]:
    """The sizes of titles: the first one, and those of several lines, most with a word, unlike a chart's."""
    own = defaultdict[float, list[bool]](list)
    for line, look in (each for each in lines if each[1].size > above):
        own[look.size].append(bool(WORD.search(line)))
    first, is_short = next(iter(own), 0.0), len(own) <= _TITLE_LINES
    worded = {size: sum(each) for size, each in own.items() if 2 * sum(each) >= len(each)}
    return [size for size, count in worded.items() if size == first or is_short or count > 1]


def _may_be_heading(line: str, following: str) -> bool:
    """Whether it is a short line with a word, ends like a heading, and is not the first row of a table."""
    if width(line) > _MAX_HEADING_WIDTH or not WORD.search(line) or _NOT_A_HEADING_END.search(line):
        return False
    cells = following.split()
    return (
        len(cells) < MIN_COLUMNS or len(cells) != len(line.split()) or not any(map(FIGURE.fullmatch, cells))
    )


def _marked(lines: Sequence[tuple[int, str]], depths: Sequence[int]) -> Iterator[Bookmark]:
    """The headings among the lines, by their depths; a heading may take two lines, the first some more."""
    most = _MAX_TITLE_LINES
    for (page, depth), group in groupby(zip(lines, depths, strict=True), lambda each: (each[0][0], each[1])):
        titles = [line for (_, line), _ in group]
        if len(titles) in range(2, most + 1) and not any(map(_begins, titles[1:])):
            titles = [reduce(lambda title, line: continued(title, line) + line, titles)]
        most = _TITLE_LINES if depth else most
        yield from (Bookmark(page, depth, title[:MAX_TITLE_CHARS]) for title in titles if depth)


_ARTICLE = re.compile(r"第[\d一二三四五六七八九十百]{1,5}条[\s：:]")
_OPEN_END = re.compile(r"[,;:，、；：]$")
_MAX_CODE_SHARE = 0.9  # of the letters
_MIN_PROSE_LINES = 3  # lines that continue in the next one, among the last _PAGE_LINES
_PAGE_LINES = 60
_NOTE_SIZE = 0.93  # of the text's size
_NOTE = re.compile(r"[\[【（(]?(\d{1,3})|[*†‡§¹²³①-⑳]|注")


class PdfReader(BaseReader):
    """`scans`: the lines recognised on pages without text. Other such pages, and damaged ones, are returned
    as empty documents, with their number as `scanned`."""

    def __init__(self, scans: Scans | None = None) -> None:
        self._scans = scans or {}

    def load_data(self, content: bytes) -> list[Document]:
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the document's bytes
        try:
            pdf = pypdf.PdfReader(BytesIO(content))
            _unlock(pdf)
            with cached_fonts():
                return _documents(self._pages(pdf), bookmarks(pdf))
        except (PyPdfError, DependencyError) as error:
            raise UnreadableDocumentError(
                "The file is not a valid PDF document: print it to a PDF again and add that."
            ) from error

    def _pages(self, pdf: pypdf.PdfReader) -> list[Extracted]:
        """Raises a damaged page's error if no page can be read."""
        pages, fault = list[Extracted | None](), None
        for number, page in enumerate(pdf.pages, start=1):
            try:
                read = laid_out(self._scans[number]) if number in self._scans else read_page(page)
                pages.append(read._replace(lines=[*read.lines, *map(Row, filled_fields(page))]))
            except FAULTS as error:
                pages.append(None)
                fault = error
        if fault and not any(any(page.lines) or page.is_scan for page in pages if page):
            raise fault
        return [page or Extracted([], {}, is_scan=True) for page in pages]


class PictureReader(BaseReader):
    """Reads a picture as the single page of a scan."""

    def __init__(self, scans: Scans | None = None) -> None:
        self._page = laid_out(scans[1]) if scans else Extracted([], {}, is_scan=True)

    def load_data(self, content: bytes) -> list[Document]:
        return _documents([self._page], [])


def _documents(pages: list[Extracted], marks: list[Bookmark]) -> list[Document]:
    extracted = _with_code(_without_gaps(pages))
    looks = [page.looks for page in extracted]
    lines = [page.lines for page in extracted]
    whole = _with_headers(without_margins(lines, _titles(looks, _text_size(lines, looks))))
    whole = without_contents(whole, [(mark.page, mark.title) for mark in marks])
    scans = [at for at, page in enumerate(extracted, start=1) if page.is_scan]
    sections = _sections(whole, looks, marks or _headings(whole, looks))
    return [*sections, *(Document(text="", metadata={"scanned": at}) for at in scans)]


def _without_gaps(pages: list[Extracted]) -> list[Extracted]:
    """Remove the blanks between the characters of recognised (OCR) text, in all or just some pages."""
    texts = ["\n".join(page.lines) for page in pages]
    whole = is_spaced_out("\n".join(texts))
    closed: list[Extracted] = []
    for text, (lines, looks, is_scan) in zip(texts, pages, strict=True):
        close = partial(close_gaps, spaced_out=whole or is_spaced_out(text))
        typed = [line.closed(close) if isinstance(line, Row) else close(line) for line in lines]
        closed.append(Extracted(typed, {close(line): look for line, look in looks.items()}, is_scan))
    return closed


def _with_code(pages: list[Extracted]) -> list[Extracted]:
    """Mark lines of code, by their font, unless it is that of the whole text, as in a typed letter."""
    letters = Counter[bool]()
    for page in pages:
        for line, look in page.looks.items():
            letters[look.is_code] += len(line)
    if letters[True] > _MAX_CODE_SHARE * letters.total():
        return pages

    def marked(page: Extracted) -> list[str]:
        code = {line for line, look in page.looks.items() if look.is_code}
        return [Row(line) if line in code and not isinstance(line, Row) else line for line in page.lines]

    return [page._replace(lines=marked(page)) for page in pages]


def _with_headers(pages: Sequence[list[str]]) -> Sequence[list[str]]:
    """Repeat the header of a table that continues at the top of the next page."""
    for before, page in pairwise(pages):
        above, table = next(reversed([*filter(None, before)]), ""), next(filter(None, page), "")
        if not (isinstance(above, Table) and isinstance(table, Table)):
            continue
        places = zip(above.edges, table.edges, strict=False)
        same = len(above.rows[0]) == len(table.rows[0]) and all(abs(a - b) < SAME_PLACE for a, b in places)
        if same and not above.is_form and above.rows[0] != table.rows[0]:
            rows, spans = [above.rows[0], *table.rows], [above.spans[0], *table.spans]
            page[page.index(table)] = Table.of(rows, spans, table.edges)
    return pages


def _unlock(pdf: pypdf.PdfReader) -> None:
    """Many PDFs are encrypted with an empty password, just to prevent printing."""
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


@dataclass(frozen=True, slots=True)
class _Line:
    """`full`: a line at least this wide may continue in the next one."""

    text: str
    page: int
    full: float = math.inf

    def continues_in(self, following: str) -> bool:
        """Whether both belong to one paragraph: a full line continues, unless it ends a sentence."""
        if not following or width(self.text) < self.full or PARAGRAPH_END.search(self.text):
            return False
        return not _begins(following) and not is_row(self.text, following)


def _begins(line: str) -> bool:
    """Whether the line begins with a number that starts a new item: 一、, （一）, 第三条, "1. "."""
    return bool(ITEM.match(line) or _ARTICLE.match(line))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Lines of a page up to a heading, or to its end. `in_text`: the heading is one of the lines."""

    lines: list[_Line]
    heading: Bookmark | None = None
    in_text: bool = False


def _sections(
    pages: Sequence[list[str]], looks: Sequence[dict[str, Look]], marks: Sequence[Bookmark]
) -> list[Document]:
    body = _Body()
    by_page: dict[int, list[Bookmark]] = defaultdict(list)
    for mark in marks:
        by_page[mark.page].append(mark)
    text_size = _text_size(pages, looks)
    for index, lines in enumerate(pages):
        filled = _without_blank_ends(lines)
        notes, page = _first_note(filled, looks[index], text_size), _to_lines(filled, index + 1)
        body.page(index + 1, [*_stretches(page[:notes], by_page.get(index, []))], page[notes:])
    return body.finish()


class _Body:
    """Collects pages; a page that continues the text of the one before shares its section."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._lines: list[_Line] = []  # since the last heading, or the last page that did not continue
        self._notes: list[_Line] = []  # the current page's footnotes

    def page(self, number: int, stretches: Sequence[_Stretch], notes: list[_Line]) -> None:
        first = stretches[0].lines
        if _continues(self._lines, first):
            is_cut = self._lines[-1].continues_in(first[0].text)
            at = _first_end(first) if is_cut else 0  # notes follow the complete sentence
            self._lines += _concatenated(first[:at], self._notes)
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
        self._outline.block(*_joined(_concatenated(self._lines, self._notes)))
        self._lines, self._notes = [], []


def _without_blank_ends(lines: Sequence[str]) -> Sequence[str]:
    filled = [at for at, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _text_size(pages: Sequence[Sequence[str]], looks: Sequence[dict[str, Look]]) -> float:
    """The size of most letters."""
    sizes = Counter[float]()
    for lines, shown in zip(pages, looks, strict=True):
        for line in (line for line in lines if not isinstance(line, Table)):
            sizes[shown.get(line, Look()).size] += len(line)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def _titles(looks: Sequence[dict[str, Look]], text_size: float) -> list[set[str]]:
    """Each page's lines that are larger than the text, or bold in the text's size."""
    title = {look for shown in looks for look in shown.values() if look.size > _LARGER * text_size}
    title.add(Look(text_size, is_bold=True))
    return [{line for line, look in shown.items() if look in title} for shown in looks]


def _first_note(lines: Sequence[str], shown: dict[str, Look], text_size: float) -> int:
    """Where a page's footnotes begin: the first marked line of the smaller type at its end. Their numbers are
    consecutive, unlike those of code or a table's rows."""
    at = first = len(lines)
    while at and 0 < shown.get(lines[at - 1], Look()).size < _NOTE_SIZE * text_size:
        at -= 1
        first = at if _NOTE.match(lines[at]) else first
    numbers = [int(mark[1]) for line in lines[first:] if (mark := _NOTE.match(line)) and mark[1]]
    count = all(following == number + 1 for number, following in pairwise(numbers))
    return first if at and count else len(lines)  # with nothing above them they are not notes


def _to_lines(lines: Sequence[str], page: int) -> list[_Line]:
    return [_Line(text, page, full) for text, full in zip(lines, full_widths(lines), strict=True)]


def _stretches(lines: Sequence[_Line], marks: Sequence[Bookmark]) -> Iterator[_Stretch]:
    """Split a page at its bookmarks. Of those whose line is not found, the first, with those nested in it,
    applies from where the one before it ended; the others apply only to what follows the page."""
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


def _continues(before: Sequence[_Line], page: Sequence[_Line]) -> bool:
    """Whether a page continues the text before it: in mid-sentence, in a list, or in an article of a law.
    With few lines of prose, as on slides, this is less certain than from line to line on one page."""
    if not before or not page or math.isinf(page[0].full):
        return False
    before = before[-_PAGE_LINES:]
    last, first = before[-1], page[0].text
    if _OPEN_END.search(last.text):
        return True
    if last.continues_in(first):
        prose = sum(line.continues_in(following.text) for line, following in pairwise(before))
        return first[0].islower() or prose >= _MIN_PROSE_LINES
    item = next((line.text for line in reversed(before) if _begins(line.text)), "")
    return bool(_ARTICLE.match(item)) and not _begins(first)


def _first_end(lines: Sequence[_Line]) -> int:
    """The number of lines in the first paragraph."""
    pairs = enumerate(pairwise(lines), start=1)
    return next((at for at, (line, after) in pairs if not line.continues_in(after.text)), len(lines))


def _concatenated(lines: Sequence[_Line], notes: Sequence[_Line]) -> list[_Line]:
    """Lines, then notes, so that no sentence continues from one into the other."""
    return [
        line for part in (lines, notes) if part for line in (*part[:-1], replace(part[-1], full=math.inf))
    ]


def _joined(lines: Sequence[_Line]) -> tuple[str, list[tuple[int, int]]]:
    """The paragraphs, and the offsets at which pages begin in them."""
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    length = 0
    filled = [*dropwhile(lambda line: not line.text, lines)]
    for line, following in zip_longest(filled, filled[1:]):
        if not starts or starts[-1][1] != line.page:
            starts.append((length, line.page))
        continues = following is not None and line.continues_in(following.text)
        parts.append(continued(line.text, following.text) if continues else f"{line.text}\n")
        length += len(parts[-1])
    return "".join(parts), starts
