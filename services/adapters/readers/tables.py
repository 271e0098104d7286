"""Tables as text: Markdown where a row fits into a chunk beside the header, else `header: value` lines."""

from __future__ import annotations

from collections.abc import Sequence

from core.prompt.tokens import estimate_tokens

# Together they stay under the usual chunk (192 tokens), and so does a paragraph of a record, twice a row. A
# header of more than half a chunk would not be repeated (services/knowledge/chunking/atoms.py). What is left
# of the
# chunk is for vocabularies that count more than the estimate.
HEADER_TOKENS = 85
ROW_TOKENS = 80
_HEAVIEST_CHAR_TOKENS = 1.5
_KEY_CHARS = 60
_HEADER_JOINT = " / "

Rows = Sequence[Sequence[str]]


def markdown_table(rows: Rows) -> str:
    """The first row is the header, short rows are filled up.

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
