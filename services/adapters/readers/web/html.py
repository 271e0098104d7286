"""HTML: what a reader of the page would read, in sections by heading; tables and code stay recognisable."""

from __future__ import annotations

import re

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from selectolax.lexbor import LexborHTMLParser

from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, fenced, with_dates
from services.adapters.readers.web.dates import declared_dates
from services.adapters.readers.web.tables import read_table
from services.adapters.readers.web.tree import Step, Steps, is_unseen, parse_html, rest_of, text_of, visible

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_WHOLE = frozenset(("table", "pre", *_HEADINGS))
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt",
     "fieldset", "figcaption", "figure", "footer", "header", "hr", "html", "li", "main", "ol", "p",
     "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul")
)  # fmt: skip


class HtmlReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        page = parse_html(decode_html(content))
        return with_dates(_Page(_title(page)).read(page), declared_dates(page))


def decode_html(content: bytes) -> str:
    charset = _CHARSET.search(content[:4096])
    return decode(content, charset.group(1).decode() if charset else None)


def read_html(text: str) -> list[Document]:
    """The sections of a page that is part of something else, which has a name of its own."""
    return _Page("").read(parse_html(text))


def _title(page: LexborHTMLParser) -> str:
    """What is written above a page that has no heading for it: the window's title."""
    if any(not is_unseen(heading) for heading in page.css("h1")):
        return ""
    title = page.css_first("head > title") or page.css_first("title")
    return " ".join(title.text().split()) if title is not None else ""


class _Page:
    """One pass over the page; a block's text is said when the next block begins or this one ends."""

    def __init__(self, title: str) -> None:
        self._outline = Outline()
        self._outline.heading(1, title)
        self._title_level = 1 if title else 0
        self._words: list[str] = []
        self._bullet = ""
        self._layouts: frozenset[int] = frozenset()

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
                self._read_whole(tag, rest_of(node, steps))
            else:
                self._enter(tag)
        self._flush()
        return self._outline.finish()

    def _enter(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._flush()
            self._bullet = "- " if tag == "li" else self._bullet
        elif tag == "br":
            self._words.append("\n")

    def _leave(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._flush()
            self._bullet = "" if tag == "li" else self._bullet

    def _read_whole(self, tag: str, steps: Steps) -> None:
        if tag == "table":
            self._outline.block(read_table(steps))
        elif tag == "pre":
            self._outline.block(fenced(text_of(steps).strip("\n")))
        else:
            self._outline.heading(int(tag[1]) + self._title_level, " ".join(text_of(steps).split()))

    def _flush(self) -> None:
        if not self._words:
            return
        lines = [line.strip() for line in "".join(self._words).split("\n")]
        text = "\n".join(line for line in lines if line)
        self._words = []
        if text:
            self._outline.block(self._bullet + text)
            self._bullet = ""


def _layouts(page: LexborHTMLParser) -> frozenset[int]:
    """The tables that only arrange the page: they hold headings, code or other tables."""
    layouts: set[int] = set()
    visited: set[int] = set()
    for whole in page.css("table, pre, h1, h2, h3, h4, h5, h6") if page.css_first("table") else ():
        node = whole.parent
        while node is not None and node.mem_id not in visited:
            visited.add(node.mem_id)
            if node.tag == "table":
                layouts.add(node.mem_id)
                break
            node = node.parent
    return frozenset(layouts)
