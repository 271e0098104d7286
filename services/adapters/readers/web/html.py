"""HTML: the text a visitor would read, without menus and banners, in sections by heading; tables and code
stay recognisable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import Message
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from selectolax.lexbor import LexborHTMLParser, LexborNode

from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import (
    Outline,
    fenced,
    joined_header,
    markdown_table,
    title_rows,
    with_dates,
)
from services.adapters.readers.web.tree import (
    Step,
    Steps,
    hide_clutter,
    is_hidden,
    parse_html,
    rest_of,
    text_of,
    visible,
)

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_ARCHIVE_HEAD_BYTES, _MAX_BOUNDARIES, _PAGE_TYPES = 4096, 50, ("text/html", "application/xhtml+xml")
_UNTITLED = re.compile(
    r"(?:untitled|no title|new page|无标题|無標題|未命名|新建网页)"
    r"(?:\s*(?:document|page|文档|文件|网页|網頁))?\W*\d*$",
    re.IGNORECASE,
)
_SPACES = re.compile(r"\s+")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_WHOLE = frozenset(("table", "pre", *_HEADINGS))
_DEFINED = ("dt", "dd")
_IN_BLOCKS = ("ul", "ol", "dl", "blockquote", "table")  # read as usual inside a definition, too
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt",
     "fieldset", "figcaption", "figure", "footer", "header", "hr", "html", "li", "main", "ol", "p",
     "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul")
)  # fmt: skip


class HtmlReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        text = _page_in_archive(content) or decode_html(content)
        page = parse_html(text)
        hide_clutter(page)
        if not _has_text(page):
            page = parse_html(text)
        return with_dates(_Page(_title(page)).read(page), declared_dates(page))


def _has_text(page: LexborHTMLParser) -> bool:
    steps = visible(page.root) if page.root is not None else iter(())
    return any(step is Step.TEXT and (node.text_content or "").strip() for step, node in steps)


def _page_in_archive(content: bytes) -> str:
    """The page that a browser saved as a single file with its pictures (MHTML), like a mail; "" if none.
    Programs also save such a file as .htm."""
    head = content[:_ARCHIVE_HEAD_BYTES].lstrip().lower()
    if head.startswith(b"<") or b"multipart/" not in head or content.count(b"boundary=") > _MAX_BOUNDARIES:
        return ""
    parts = message_from_bytes(content, policy=policy.compat32).walk()
    page = next((part for part in parts if part.get_content_type() in _PAGE_TYPES), None)
    body = page.get_payload(decode=True) if page is not None else None
    if page is None or not isinstance(body, bytes):
        return ""
    declared = charset_of(page)
    return decode(body, declared) if declared else decode_html(body)


def charset_of(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except ValueError:  # it contains a NUL
        return None


def decode_html(content: bytes) -> str:
    charset = _CHARSET.search(content[:4096])
    return decode(content, charset.group(1).decode() if charset else None)


def read_html(text: str) -> list[Document]:
    """The sections of a page that is part of another document, whose title replaces the page's."""
    return read_parsed(parse_html(text))


def read_parsed(page: LexborHTMLParser) -> list[Document]:
    return _Page("").read(page)


def _title(page: LexborHTMLParser) -> str:
    """The title for a page without an h1: that of the window."""
    if any(not is_hidden(heading) for heading in page.css("h1")):
        return ""
    title = page.css_first("head > title") or page.css_first("title")
    words = " ".join(title.text().split()) if title is not None else ""
    return "" if _UNTITLED.match(words) else words


class _Page:
    """One pass over the page; a block's text is added when the next block begins or this one ends."""

    def __init__(self, title: str) -> None:
        self._outline = Outline()
        self._outline.heading(1, title)
        self._title_level = 1 if title else 0
        self._repeated = title  # by the page's first heading
        self._words: list[str] = []
        self._bullet = ""
        self._layouts: frozenset[int] = frozenset()
        self._definition = _Definition()

    def read(self, page: LexborHTMLParser) -> list[Document]:
        self._layouts = _layouts(page)
        steps = visible(page.root) if page.root is not None else iter(())
        for step, node in steps:
            if step is Step.TEXT:
                self._words.append(_SPACES.sub(" ", node.text_content or ""))
                continue
            tag = node.tag or ""
            if step is Step.LEAVE:
                self._leave(tag)
            elif tag in _WHOLE and not (tag == "table" and node.mem_id in self._layouts):
                self._flush()
                self._end_definition()
                self._read_whole(tag, rest_of(node, steps))
            else:
                self._enter(tag)
        self._flush()
        self._end_definition()
        return self._outline.finish()

    def _enter(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._flush()
            if tag in _IN_BLOCKS or (tag == "dt" and self._definition.texts):
                self._end_definition()
            if tag in _DEFINED:
                self._definition.part = tag
            self._bullet = "- " if tag == "li" else self._bullet
        elif tag == "br":
            self._words.append("\n")

    def _leave(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._flush()
            if tag == "dl":
                self._end_definition()
            if tag in _DEFINED:
                self._definition.part = ""
            self._bullet = "" if tag == "li" else self._bullet

    def _read_whole(self, tag: str, steps: Steps) -> None:
        if tag == "table":
            self._outline.block(read_table(steps))
        elif tag == "pre":
            self._outline.block(fenced(text_of(steps).strip("\n")))
        else:
            words, repeated = " ".join(text_of(steps).split()), self._repeated
            self._repeated = "" if words else repeated
            if not words or words != repeated:
                self._outline.heading(int(tag[1]) + self._title_level, words)

    def _flush(self) -> None:
        if not self._words:
            return
        lines = [line.strip() for line in "".join(self._words).split("\n")]
        text = "\n".join(line for line in lines if line)
        self._words = []
        if text and not self._definition.take(text):
            self._end_definition()
            self._add(text)

    def _end_definition(self) -> None:
        definition, self._definition = self._definition, _Definition()
        if line := definition.line():
            self._add(line)

    def _add(self, text: str) -> None:
        self._outline.block(self._bullet + text)
        self._bullet = ""


@dataclass(slots=True)
class _Definition:
    """Terms and their definitions, written in one line, as neither is meaningful without the other."""

    part: str = ""  # dt or dd, while in one
    terms: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def take(self, text: str) -> bool:
        """Whether the text belongs to the line, as a term or as the first paragraph of its definition."""
        part = self.part
        if part == "dd":
            self.part = ""  # later paragraphs are separate
        if part:
            (self.terms if part == "dt" else self.texts).append(text)
        return bool(part)

    def line(self) -> str:
        term, text = ", ".join(self.terms), "; ".join(self.texts)
        if not term or not text:
            return term or text
        if term.endswith(("?", "？")):
            return f"{term}\n{text}"
        return f"{term}{'' if term.endswith('：') else ' ' if term.endswith(':') else ': '}{text}"


def _layouts(page: LexborHTMLParser) -> frozenset[int]:
    """The layout tables: they contain headings, code or other tables, or only one column of text."""
    layouts: set[int] = set()
    visited: set[int] = set()
    tables = page.css("table")
    for whole in page.css("table, pre, h1, h2, h3, h4, h5, h6") if tables else ():
        node = whole.parent
        while node is not None and node.mem_id not in visited:
            visited.add(node.mem_id)
            if node.tag == "table":
                layouts.add(node.mem_id)
                break
            node = node.parent
    return frozenset(table.mem_id for table in tables if table.mem_id in layouts or _is_one_column(table))


def _is_one_column(table: LexborNode) -> bool:
    """Whether no row has text in more than one cell. A list under a header is a table, though; beside
    pictures it is not."""
    rows = [row.css("td, th") for row in table.css("tr")]
    is_list = table.css_first("th") is not None and all(len(row) <= 1 for row in rows)
    return not is_list and all(sum(bool(cell.text().strip()) for cell in row) <= 1 for row in rows)


_META_PUBLISHED = (
    "article:published_time", "datepublished", "citation_publication_date", "dc.date.issued",
    "dcterms.issued", "dc.date", "dcterms.date", "pubdate", "publishdate", "publish_date", "publication_date",
    "date",
)  # fmt: skip
_META_CHANGED = (
    "article:modified_time", "og:updated_time", "datemodified", "dcterms.modified", "last-modified",
)  # fmt: skip
_TIME_PUBLISHED = ("datepublished", "datemodified")
_MAX_TIMES = 50
_MAX_NOTES = 20
_MAX_NOTE_CHARS = 200_000


def declared_dates(page: LexborHTMLParser) -> list[str]:
    """The dates that a page declares for machines: meta tags, JSON-LD, and <time> if it is about the page.
    Unparsed, from most to least trusted: publication before modification."""
    metas: dict[str, str] = {}
    for tag in page.css("meta"):
        name = _text(tag, "property") or _text(tag, "name") or _text(tag, "itemprop")
        metas.setdefault(name.lower(), _text(tag, "content"))
    notes = list(_notes(page))
    dates = [
        *(metas.get(name, "") for name in _META_PUBLISHED),
        *_dates_in(notes, "datePublished"),
        *(metas.get(name, "") for name in _META_CHANGED),
        *_dates_in(notes, "dateModified"),
        *_times(page),
    ]
    return [date for date in dates if date]


def _notes(page: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """The page's JSON-LD objects: at the top level, in a top-level list, or in its @graph."""
    for script in page.css('script[type="application/ld+json"]')[:_MAX_NOTES]:
        text = script.text()
        if len(text) > _MAX_NOTE_CHARS:
            continue
        try:
            note = json.loads(text)
        except (ValueError, RecursionError):
            continue
        graph = note.get("@graph", [note]) if isinstance(note, dict) else note
        yield from (item for item in graph if isinstance(item, dict)) if isinstance(graph, list) else ()


def _dates_in(notes: list[dict[str, Any]], field: str) -> list[str]:
    """The date, if there is just one: several objects with different dates say nothing about the page."""
    dates = {note[field].strip() for note in notes if isinstance(note.get(field), str)}
    return list(dates) if len({date[:10] for date in dates}) == 1 else []


def _times(page: LexborHTMLParser) -> list[str]:
    """A page with several times (comments, other articles) has none of its own, unless one is marked so."""
    times = page.css("time[datetime]")[:_MAX_TIMES]
    for time in times:
        if "pubdate" in time.attributes or _text(time, "itemprop").lower() in _TIME_PUBLISHED:
            return [_text(time, "datetime")]
    days = {_text(time, "datetime")[:10] for time in times}
    return list(days) if len(days) == 1 else []


def _text(tag: LexborNode, attribute: str) -> str:
    return (tag.attributes.get(attribute) or "").strip()


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
    """A table's content: the words of its caption, and its rows of cells as written."""

    caption: list[str] = field(default_factory=list)
    rows: list[list[_Cell]] = field(default_factory=list)
    header_rows: int = 0


def read_table(steps: Steps) -> str:
    """A table as text; the words of a spanning cell are repeated where needed. Single-cell rows at the top
    are a caption. `steps` are those below the table."""
    parts = _parts(steps)
    rows = [row for row in parts.rows if row]
    titles = _title_rows(rows)
    caption = [" ".join(" ".join(parts.caption).split()), *(row[0].text for row in rows[:titles])]
    rows = rows[titles:]
    heads = min(max(0, parts.header_rows - titles) or _leading_header_rows(rows), len(rows))
    grid = _Grid(heads).lines(rows)
    if 1 < heads < len(grid):
        grid = [joined_header(grid[:heads]), *grid[heads:]]
    return "\n\n".join(filter(None, ("\n".join(filter(None, caption)), markdown_table(grid))))


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
    """Repeats a cell over several rows in each row; one over several columns only in a header."""

    def __init__(self, header_rows: int) -> None:
        self._header_rows = header_rows
        self._above: dict[int, tuple[int, str]] = {}  # column → number of further rows, text
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
        """Add cells of earlier rows that extend into this one, up to the next free column."""
        while held := self._above.pop(len(line), None):
            more, text = held
            if more > 1:
                self._above[len(line)] = (more - 1, text)
            self._room_chars -= len(text)
            line.append(text if self._room_chars > 0 else "")


def _title_rows(rows: list[list[_Cell]]) -> int:
    widths = [sum(cell.columns for cell in row) for row in rows]
    spans = [row[0].columns if len(row) == 1 and row[0].rows == 1 else 1 for row in rows]
    return title_rows(spans, max((width for width, span in zip(widths, spans, strict=True) if span < width),
                                 default=0))  # fmt: skip


def _leading_header_rows(rows: list[list[_Cell]]) -> int:
    """How many top rows have only header cells."""
    count = 0
    while count < len(rows) and rows[count] and all(cell.is_header for cell in rows[count]):
        count += 1
    return count
