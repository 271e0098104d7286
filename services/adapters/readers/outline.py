"""What readers put together: a document's blocks under their headings, tables as text, code in fences,
dates."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
