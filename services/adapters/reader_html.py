"""HTML: what a reader of the page would read, in sections by heading; tables and code stay recognisable."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PreformattedString
from bs4.exceptions import ParserRejectedMarkup
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.decoding import decode
from services.adapters.html_dates import declared_dates
from services.adapters.outline import Outline, markdown_table, with_dates

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_UNREAD = ("script", "style", "nav", "noscript", "template", "head", "title", "svg", "iframe", "object")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_WHOLE = ("table", "pre", *_HEADINGS)
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt",
     "fieldset", "figcaption", "figure", "footer", "header", "hr", "html", "li", "main", "ol", "p",
     "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul")
)  # fmt: skip


class HtmlReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        charset = _CHARSET.search(content[:4096])
        text = decode(content, charset.group(1).decode() if charset else None)
        try:
            soup = BeautifulSoup(text, "html.parser")
        except ParserRejectedMarkup as error:
            raise UnreadableDocumentError("The file is not a valid HTML document.") from error
        declared = declared_dates(soup)
        title = " ".join(soup.title.get_text().split()) if soup.title else ""
        for tag in soup.find_all(_UNREAD):
            tag.extract()
        return with_dates(_Page(title if not soup.find("h1") else "").read(soup), declared)


class _Page:
    """One pass over the text nodes; each knows its nearest block, remembered so that depth costs nothing."""

    def __init__(self, title: str) -> None:
        self._outline = Outline()
        self._outline.heading(1, title)
        self._title_level = 1 if title else 0
        self._block_of: dict[int, Tag | None] = {}
        self._whole: set[int] = set()
        self._block: Tag | None = None
        self._words: list[str] = []

    def read(self, soup: BeautifulSoup) -> list[Document]:
        for node in soup.descendants:
            if isinstance(node, Tag):
                self._open(node)
            elif isinstance(node, NavigableString) and not isinstance(node, PreformattedString):
                self._text(node)
        self._flush()
        return self._outline.finish()

    def _open(self, tag: Tag) -> None:
        parent = self._block_of.get(id(tag.parent))
        if id(parent) in self._whole:
            self._block_of[id(tag)] = parent  # inside a table, code or heading: already read with it
        elif tag.name in _WHOLE and not _is_layout(tag):
            self._block_of[id(tag)] = tag
            self._whole.add(id(tag))
            self._flush()
            self._read_whole(tag)
        else:
            self._block_of[id(tag)] = tag if tag.name in _BLOCKS else parent
            if tag.name == "br":
                self._words.append("\n")

    def _read_whole(self, tag: Tag) -> None:
        if tag.name == "table":
            rows = [row.find_all(["td", "th"]) for row in tag.find_all("tr")]
            self._outline.block(markdown_table([[cell.get_text(" ") for cell in row] for row in rows]))
        elif tag.name == "pre":
            self._outline.block(f"```\n{tag.get_text().strip(chr(10))}\n```")
        else:
            level = int(tag.name[1]) + self._title_level
            self._outline.heading(level, " ".join(tag.get_text().split()))

    def _text(self, node: NavigableString) -> None:
        block = self._block_of.get(id(node.parent))
        if id(block) in self._whole:
            return
        if block is not self._block:
            self._flush()
            self._block = block
        self._words.append(re.sub(r"\s+", " ", node))

    def _flush(self) -> None:
        lines = [line.strip() for line in "".join(self._words).split("\n")]
        text = "\n".join(line for line in lines if line)
        if text and self._block is not None and self._block.name == "li":
            text = f"- {text}"
        self._outline.block(text)
        self._words = []


def _is_layout(tag: Tag) -> bool:
    """A table that only arranges the page: it holds headings, code or other tables."""
    return tag.name == "table" and tag.find(["table", "pre", *_HEADINGS]) is not None
