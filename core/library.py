"""The library: items with title and content, in batches and modules, read from files that people write."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt

from core.conversation.sessions import MAX_NAME_CHARS, MAX_PERSONA_CHARS
from core.errors import BadRequestError
from core.text import fold_case, scrub

MAX_ITEMS = 2_000
MAX_FILE_BYTES = 1_000_000
_NAME_CHARS = 100  # of a module or batch name; most such names fit a file name's 255 bytes of UTF-8
_NAME_BYTES = 240
_TITLES = ("title", "标题")
_CONTENTS = ("content", "内容")
_VARIABLE = re.compile(r"\{([^\W\d][\w \-]{0,39})\}")


@dataclass(frozen=True, slots=True)
class LibraryItem:
    title: str
    content: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Names in braces, without duplicates, in order; an item that has some is a prompt template."""
        return tuple(dict.fromkeys(_VARIABLE.findall(self.content)))


@dataclass(frozen=True, slots=True)
class Batch:
    """`file` is the file it was read from, relative to the library's folder."""

    module: str
    name: str
    file: str
    items: tuple[LibraryItem, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """Module → batch → items, sorted by name; `problems` has a line for each file that was skipped."""

    modules: Mapping[str, Mapping[str, Batch]]
    problems: tuple[str, ...] = ()

    def templates(self, words: str, limit: int) -> list[tuple[Batch, LibraryItem]]:
        """Return templates whose titles contain `words`, in any case and width; prefix matches first."""
        begun = fold_case(words.strip())
        matches = [
            (not title.startswith(begun), batch, item)
            for batches in self.modules.values()
            for batch in batches.values()
            for item in batch.items
            if begun in (title := fold_case(item.title)) and item.variables
        ]
        return [(batch, item) for _, batch, item in sorted(matches, key=lambda match: match[0])[:limit]]


def checked_name(name: str, what: str) -> str:
    """Return a module's or batch's name in NFC. Raises BadRequestError if it is unfit for a file name."""
    name = unicodedata.normalize("NFC", name)
    if not name.strip() or name.startswith(".") or re.search(r"[/\\]", name):
        raise BadRequestError(f"{what}: its name must not contain / or \\ or begin with a dot.")
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name):
        raise BadRequestError(f"{what}: its name contains a character that cannot be shown.")
    if len(name) > _NAME_CHARS or len(name.encode()) > _NAME_BYTES:
        raise BadRequestError(f"{what}: its name has more than {_NAME_CHARS} characters.")
    return name


def read_items(ending: str, text: str) -> tuple[LibraryItem, ...]:
    """Read the items of a file. Raises BadRequestError, which names the faulty line or item."""
    items: list[LibraryItem] = []
    for title, content in READERS[ending](scrub(text)):
        if len(items) == MAX_ITEMS:
            raise BadRequestError(f"more than {MAX_ITEMS} items: split it into several files.")
        items.append(_item(f"item {len(items) + 1}", title, content))
    if not items:
        raise BadRequestError("it contains no items.")
    return tuple(items)


def _item(place: str, title: Any, content: Any) -> LibraryItem:
    if not isinstance(title, str) or not (title := " ".join(scrub(title).split())):
        raise BadRequestError(f"{place} has no title.")
    if len(title) > MAX_NAME_CHARS:
        raise BadRequestError(f"{place} has a title of more than {MAX_NAME_CHARS} characters.")
    if not isinstance(content, str) or not (content := scrub(content).strip()):
        raise BadRequestError(f"{place} ({title}) has no content.")
    if len(content) > MAX_PERSONA_CHARS:
        raise BadRequestError(f"{place} ({title}) has more than {MAX_PERSONA_CHARS} characters.")
    return LibraryItem(title, content)


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    title: str
    start: int
    end: int


def _markdown(text: str) -> Iterator[tuple[str, str]]:
    """Make an item of each top-level heading; a single higher one above the others is the file's title."""
    tokens = MarkdownIt("commonmark").parse(text)
    headings = [
        _Heading(int(token.tag[1]), tokens[at + 1].content, *token.map)
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    if not headings:
        raise BadRequestError("it has no headings: each item begins with one.")
    levels = [heading.level for heading in headings]
    if levels.count(min(levels)) == 1 and len(levels) > 1 and levels[0] == min(levels):
        headings, levels = headings[1:], levels[1:]
    items = [heading for heading in headings if heading.level == min(levels)]
    lines = text.split("\n")
    ends = [heading.start for heading in items[1:]] + [len(lines)]
    for heading, end in zip(items, ends, strict=True):
        yield heading.title, "\n".join(lines[heading.end : end])


def _csv(text: str) -> Iterator[tuple[str | None, str | None]]:
    """Make an item of each row; the first row names the columns."""
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
        title, content = _first_of(names, _TITLES), _first_of(names, _CONTENTS)
        if title is None or content is None:
            raise BadRequestError('line 1 must name the columns: title (or "标题") and content (or "内容").')
        for row in rows:
            if row[title] or row[content]:
                yield row[title], row[content]
    except csv.Error as error:
        raise BadRequestError(f"line {rows.reader.line_num}: {error}.") from error


def _json(text: str) -> Iterator[tuple[Any, Any]]:
    """Read a list of objects with title and content, or one object that maps titles to contents."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequestError(f"line {error.lineno}: invalid JSON: {error.msg}.") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number with thousands of digits
        raise BadRequestError("its JSON cannot be read.") from error
    if isinstance(value, dict) and _first_of(value, _CONTENTS) is None:
        yield from value.items()
        return
    for at, each in enumerate(value if isinstance(value, list) else [value], 1):
        if not isinstance(each, dict):
            raise BadRequestError(f"item {at} is not an object with title and content.")
        yield _first_of(each, _TITLES), _first_of(each, _CONTENTS)


def _first_of(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


READERS: Mapping[str, Callable[[str], Iterator[tuple[Any, Any]]]] = {
    ".md": _markdown,
    ".csv": _csv,
    ".json": _json,
}
"""File extension → reader of its items as (title, content), not yet checked."""
