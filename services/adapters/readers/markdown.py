"""Markdown: one section per heading; the text below a heading stays as it was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from markdown_it import MarkdownIt
from markdown_it.token import Token

from core.text import scrub
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, with_dates
from services.adapters.readers.web.html import read_html

# Front matter before the text of a Markdown file: YAML between `---`, TOML between `+++`.


_YAML = re.compile(r"\A---[ \t]*\n(?=[\w-]+[ \t]*:)(?:(?!---[ \t]*\n)[^\n]*\n){0,200}---[ \t]*(?:\n|\Z)")
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(?:(?!\+\+\+[ \t]*\n)[^\n]*\n){0,200}\+\+\+[ \t]*(?:\n|\Z)")
_FIELD = re.compile(r"^([\w-]{1,40})[ \t]*:[ \t]*([^\n]{0,300})((?:\n[ \t]*-[ \t][^\n]{0,100}){0,40})", re.M)
_ITEM = re.compile(r"[^\[\],]+")
_DATES = (
    "date", "published", "pubdate", "publish_date", "publishdate", "updated", "lastmod", "last_updated",
    "last_modified", "modified",
)  # fmt: skip
_TITLES = ("title", "标题")
_SUMMARIES = ("description", "summary", "描述", "摘要")
_TAGS = ("tags", "keywords", "categories", "标签", "关键词")
# Fields that only matter to static site generators.
_SITE_FIELDS = (
    "layout", "template", "theme", "permalink", "slug", "url", "aliases", "redirect_from", "redirect_to",
    "weight", "order", "position", "nav_order", "nav_exclude", "has_children", "parent", "grand_parent",
    "menu", "sidebar", "sidebar_label", "sidebar_position", "draft", "hidden", "hide", "hide_title",
    "hide_table_of_contents", "sitemap", "robots", "search", "in_search_index", "toc", "toc_depth",
    "comments", "math", "mathjax", "katex", "mermaid", "markup", "render", "outputs", "cascade", "sort_by",
    "paginate", "paginate_by", "pagination", "pagination_label", "pagination_next", "pagination_prev",
    "image", "images", "cover", "banner", "thumbnail", "icon", "cssclass", "cssclasses", "css", "js", "head",
    "lang", "uid", "uuid", "collapsed", "custom_edit_url",
)  # fmt: skip
_HANDLED_FIELDS = frozenset((*_TITLES, *_SUMMARIES, *_TAGS, *_DATES, *_SITE_FIELDS))
_NON_SCALAR_STARTS = ("{", "&", "*", "!", "|", ">")
_COMMENT = re.compile(r"[ \t]#[^\"'\n]*$")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """`length` is its length in characters; `dates` are ordered from most to least trusted."""

    length: int = 0
    title: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Such as `owner: Viktor Sand`, in the file's order."""


def front_matter(text: str) -> FrontMatter:
    if match := _YAML.match(text):
        fields = _yaml_fields(match.group())
    elif match := _TOML.match(text):
        fields = _toml_fields(match.group().strip("+ \t\n"))
    else:
        return FrontMatter()
    return FrontMatter(
        match.end(),
        " ".join(_first(fields, _TITLES).split()),
        _first(fields, _SUMMARIES),
        tuple(dict.fromkeys(tag for name in _TAGS for tag in fields.get(name, ()))),
        tuple(fields[name][0] for name in _DATES if fields.get(name)),
        tuple(
            f"{name}: {', '.join(words)}"
            for name, words in fields.items()
            if words not in ((), ("null",), ("~",))
            and name not in _HANDLED_FIELDS
            and words[0][0] not in _NON_SCALAR_STARTS
        ),
    )


def _first(fields: Mapping[str, tuple[str, ...]], names: tuple[str, ...]) -> str:
    return next((", ".join(fields[name]) for name in names if fields.get(name)), "")


def _yaml_fields(matter: str) -> dict[str, tuple[str, ...]]:
    """The top-level fields that are words or lists of words, even if a stray colon makes the YAML invalid."""
    fields: dict[str, tuple[str, ...]] = {}
    for name, value, items in _FIELD.findall(matter):
        name, value = name.lower().replace("-", "_"), _COMMENT.sub("", value).strip()
        if value in ("", "|", ">", "|-", ">-"):
            words = [item.strip().removeprefix("-") for item in items.split("\n")]
        elif name in _TAGS or value.startswith("["):
            words = _ITEM.findall(value)
        else:
            words = [value]
        fields[name] = tuple(word for raw in words if (word := raw.strip().strip("\"'").strip()))
    return fields


def _toml_fields(matter: str) -> dict[str, tuple[str, ...]]:
    try:
        table = tomllib.loads(matter)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    taxonomies = table.get("taxonomies")  # Zola keeps tags here
    values = {**(taxonomies if isinstance(taxonomies, dict) else {}), **table}
    return {
        name.lower().replace("-", "_"): tuple(
            str(word).lower() if isinstance(word, bool) else str(word)
            for word in (value if isinstance(value, list) else [value])
            if word != "" and not isinstance(word, (dict, list))
        )
        for name, value in values.items()
    }


_PARSED_CHARS = 4_000_000
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]{1,20}(\S[^\n]{0,300})")

_HIDES = re.compile(
    r"<(?:!--|(?:template|noscript|script|style|object|iframe|svg)\b"
    r"|[a-z][^<>]{0,300}(?:hidden|display|opacity|font-size))",
    re.IGNORECASE,
)

# The tokens of a heading that are read; "" stands for the token's own text.
_TEXTS = {"text": "", "code_inline": "", "image": "", "text_special": "", "softbreak": " ", "hardbreak": " "}


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading in lines `start` to `end` (end excluded)."""

    level: int
    title: str
    start: int
    end: int


class MarkdownReader(BaseReader):
    """Only top-level headings count: a `#` in code, a quote or a list is text."""

    def __init__(self) -> None:
        self._inline = MarkdownIt("commonmark")
        self._blocks = MarkdownIt("commonmark").enable("table").disable("inline")

    def load_data(self, content: bytes) -> list[Document]:
        text = scrub(decode(content)).lstrip("\ufeff")
        matter = front_matter(text)
        text = text[matter.length :]
        lines = text.split("\n")
        headings = self._headings(lines, text) if len(text) <= _PARSED_CHARS else list(_quick_headings(lines))
        return with_dates(_outline(lines, headings, matter).finish(), matter.dates)

    def _headings(self, lines: list[str], text: str) -> list[_Heading]:
        tokens = self._blocks.parse(text)
        _read_html_blocks(lines, tokens)
        return [
            _Heading(int(token.tag[1:]), self._plain(tokens[at + 1].content), token.map[0], token.map[1])
            for at, token in enumerate(tokens)
            if token.type == "heading_open" and token.level == 0 and token.map
        ]

    def _plain(self, heading: str) -> str:
        """The heading's words without emphasis, links and code marks."""
        tokens = self._inline.parseInline(heading)
        return " ".join("".join(_texts(tokens[0].children or [])).split()) if tokens else ""


def _outline(lines: list[str], headings: Sequence[_Heading], matter: FrontMatter) -> Outline:
    """The front matter's title becomes the top heading, unless the document begins with it."""
    outline = Outline()
    begins_with_it = bool(headings) and headings[0] == _Heading(
        1, matter.title, headings[0].start, headings[0].end
    )
    below = bool(matter.title) and not begins_with_it
    if begins_with_it:
        lines[headings[0].start : headings[0].end] = [""] * (headings[0].end - headings[0].start)
    outline.heading(1, matter.title)
    outline.block(matter.summary)
    tags = ["tags: " + ", ".join(matter.tags)] if matter.tags else []
    outline.block("\n".join([*matter.others, *tags]))
    body_start = 0
    for heading in headings[begins_with_it:]:
        outline.block("\n".join(lines[body_start : heading.start]))
        outline.heading(heading.level + below, heading.title)
        body_start = heading.end
    outline.block("\n".join(lines[body_start:]))
    return outline


def _quick_headings(lines: Sequence[str]) -> Iterator[_Heading]:
    """`#` lines outside fences, for files of many megabytes, on which the full parser takes too long."""
    fence = ""
    for at, line in enumerate(lines):
        if mark := _FENCE.match(line):
            run = mark.group(1)
            if not fence:
                fence = run
            elif run.startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and (heading := _ATX.match(line)):
            yield _Heading(len(heading.group(1)), heading.group(2).strip(" #*_`"), at, at + 1)


def _read_html_blocks(lines: list[str], tokens: Sequence[Token]) -> None:
    """Replace HTML between paragraphs by what a browser would show of it, which is often nothing."""
    for token in tokens:
        if token.map and _is_html(token):
            start, end = token.map
            shown = "\n\n".join(_shown(section) for section in read_html("\n".join(lines[start:end])))
            lines[start:end] = [shown, *[""] * (end - start - 1)]


def _is_html(token: Token) -> bool:
    """Whether it is an HTML block, or a paragraph in which HTML outside `code` hides something."""
    if token.type == "html_block":
        return token.level == 0
    is_paragraph = token.type == "inline" and token.level == 1 and "<" in token.content
    return is_paragraph and "`" not in token.content and _HIDES.search(token.content) is not None


def _shown(section: Document) -> str:
    titles = section.metadata["heading"]
    return "\n\n".join([*titles[-1:], section.text] if titles != [section.text] else [section.text])


def _texts(tokens: list[Token]) -> list[str]:
    return [_TEXTS[token.type] or token.content for token in tokens if token.type in _TEXTS]
