"""Markdown: one section per heading; what stands under a heading stays as it was written."""

from __future__ import annotations

import re

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from markdown_it import MarkdownIt
from markdown_it.token import Token

from core.text import scrub
from services.adapters.decoding import decode
from services.adapters.outline import Outline, with_dates

_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?=[\w-]+[ \t]*:)(?:(?!---[ \t]*\n)[^\n]*\n){0,200}---[ \t]*(?:\n|\Z)"
)

_FIELD = re.compile(r"^([\w-]{1,40})[ \t]*:[ \t]*(\S[^\n]{0,100})", re.M)
_DATE_FIELDS = (
    "date", "published", "pubdate", "publish_date", "publishdate", "updated", "lastmod", "last_updated",
    "last_modified", "modified",
)  # fmt: skip

# What of a heading is read; "" stands for the token's own words.
_TEXTS = {"text": "", "code_inline": "", "image": "", "text_special": "", "softbreak": " ", "hardbreak": " "}


class MarkdownReader(BaseReader):
    """Only headings of the document itself count: a `#` in code, a quote or a list is text."""

    def __init__(self) -> None:
        self._inline = MarkdownIt("commonmark")
        self._blocks = MarkdownIt("commonmark").enable("table").disable("inline")

    def load_data(self, content: bytes) -> list[Document]:
        text = scrub(decode(content)).lstrip("\ufeff")
        matter = _FRONT_MATTER.match(text)
        text = text[matter.end() :] if matter else text
        lines = text.split("\n")
        outline = Outline()
        body_start = 0
        tokens = self._blocks.parse(text)
        for index, token in enumerate(tokens):
            if token.type == "heading_open" and token.level == 0 and token.map:
                outline.block("\n".join(lines[body_start : token.map[0]]))
                outline.heading(int(token.tag[1:]), self._plain(tokens[index + 1].content))
                body_start = token.map[1]
        outline.block("\n".join(lines[body_start:]))
        return with_dates(outline.finish(), _declared(matter.group()) if matter else [])

    def _plain(self, heading: str) -> str:
        """The heading's words without emphasis, links and code marks."""
        tokens = self._inline.parseInline(heading)
        return " ".join("".join(_texts(tokens[0].children or [])).split()) if tokens else ""


def _declared(matter: str) -> list[str]:
    """The values of the front matter's date fields, the most trusted first."""
    fields = {name.lower().replace("-", "_"): value for name, value in _FIELD.findall(matter)}
    return [fields[name] for name in _DATE_FIELDS if name in fields]


def _texts(tokens: list[Token]) -> list[str]:
    return [_TEXTS[token.type] or token.content for token in tokens if token.type in _TEXTS]
