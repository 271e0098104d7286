"""Source code: a fenced block per definition, headed by its name; nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.text import scrub
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import fenced, section_document

# Finds definitions in source code line by line, by the languages' keywords and by indentation.

_NAME = r"(?P<name>[\w$.:~]{1,120})"
_MODIFIERS = (
    r"(?:(?:pub(?:\([\w:\s]{1,40}\))?|public|private|protected|internal|static|final|abstract|sealed|export|default"
    r"|declare|async|unsafe|const|extern|open|override|data|partial|virtual|inline|suspend|case|implicit"
    r"|synchronized|readonly|native)\s{1,4}){0,6}"
)
_WORD = (
    r"(?:class|interface|enum(?:\s{1,4}(?:class|struct))?|struct|trait|impl(?:<[^<>]{0,80}>)?|union|record|object|module"
    r"|mod|namespace|protocol|extension|actor|def|fn|func|fun|function\*?|sub|proc|macro_rules!|type|message|service"
    r"|rpc|package\s{1,4}body|mixin)"
)
_PATTERNS = (
    re.compile(rf"{_MODIFIERS}{_WORD}\s{{1,4}}(?:self\.)?{_NAME}"),
    re.compile(rf"func\s{{1,4}}\([^()]{{0,80}}\)\s{{0,4}}{_NAME}\("),  # a method in Go
    re.compile(  # a function assigned to a name
        rf"{_MODIFIERS}(?:(?:let|var|const)\s{{1,4}})?{_NAME}\s{{0,4}}(?::[^=]{{0,80}})?=\s{{0,4}}"
        r"(?:async\s{1,4})?(?:function\b|\([^()]{0,200}\)(?:\s{0,4}:[^=]{0,80})?\s{0,4}=>|\w{1,40}\s{0,4}=>|class\b)"
    ),
    re.compile(rf"{_NAME}\s{{0,4}}(?:<-|=)\s{{0,4}}function\b"),  # R, Lua
    re.compile(rf"{_NAME}\s{{0,4}}\(\s{{0,4}}\)\s{{0,4}}\{{?\s{{0,4}}$"),  # a shell's function
    re.compile(  # SQL
        r"create\s{1,4}(?:or\s{1,4}replace\s{1,4})?(?:\w{1,20}\s{1,4}){0,3}"
        r"(?:table|view|function|procedure|trigger|type|index)\s{1,4}(?:if\s{1,4}not\s{1,4}exists\s{1,4})?[\"`\[]?"
        rf"{_NAME}",
        re.IGNORECASE,
    ),
)
# type and name before parentheses: C, C++, Java, C#, Dart
_TYPED = re.compile(
    rf"(?:[\w$<>\[\],.:*&?]{{1,80}}[\s*&]{{1,4}}){{1,6}}{_NAME}\s{{0,4}}\((?!\s{{0,4}}\*)[^;={{}}]{{0,300}}\{{?\s{{0,4}}$"
)
_NOT_TYPED = re.compile(
    r"(?:return|if|else|for|while|switch|new|throw|catch|typedef|using|import|from|await|yield|raise|assert|delete"
    r"|case|with|elif|print|echo|in|not|and|or|#)\b"
)
_SECTION = re.compile(r"\[{1,2}(?P<name>[\w.\" -]{1,120})\]{1,2}\s{0,4}$")  # TOML, INI
_KEY = re.compile(r"(?P<name>[\w.-]{1,80}):(?:\s|$)")  # YAML
_ABOVE = re.compile(r"\s{0,200}(?://|#|\*|/\*|--|@|\[\w|\"\"\"|;|%|template\b|<summary|\*/)")
_TYPED_LANGUAGES = ("c", "cpp", "java", "csharp", "dart", "")
_SECTIONED = ("toml", "ini")
_MAX_LINE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Definition:
    """`start` is its first line (from 0), including comments and decorators above it."""

    name: str
    start: int
    indent: int


def definitions(lines: Sequence[str], language: str) -> Iterator[Definition]:
    """The definitions in `lines`, in order."""
    for at, line in enumerate(lines):
        stripped = line.lstrip()
        if not stripped or len(line) > _MAX_LINE_CHARS:
            continue
        if name := _name_in(stripped, language):
            yield Definition(name, _first_line_above(lines, at), len(line) - len(stripped))


def _name_in(line: str, language: str) -> str:
    if language in _SECTIONED:
        defined = _SECTION.match(line)
    elif language == "yaml":
        defined = _KEY.match(line)
    else:
        defined = next((match for form in _PATTERNS if (match := form.match(line))), None)
        if defined is None and language in _TYPED_LANGUAGES and "(" in line and not _NOT_TYPED.match(line):
            defined = _TYPED.match(line)
    return defined.group("name").strip(".:") if defined else ""


def _first_line_above(lines: Sequence[str], at: int) -> int:
    """The first line of the comments, decorators and attributes directly above line `at`, or `at` itself."""
    above = at
    while above > 0 and at - above < 40 and _ABOVE.match(lines[above - 1][:_MAX_LINE_CHARS]):
        above -= 1
    return above


_WHOLE_CHARS = 2_000  # a longer definition is split into the definitions inside it
_MAX_LEVELS = 4


@dataclass(frozen=True, slots=True)
class _Span:
    """Lines `start` to `end` (from 0, end excluded) with the names of the definitions they are in."""

    start: int
    end: int
    names: tuple[str, ...]


class CodeReader(BaseReader):
    """`language` as in a Markdown fence, "" if unknown. Each fence's info string names its lines."""

    def __init__(self, language: str) -> None:
        self._language = language

    def load_data(self, content: bytes) -> list[Document]:
        lines = scrub(decode(content)).lstrip("\ufeff").rstrip().split("\n")
        defined = list(definitions(lines, self._language))
        spans = _Splitter(lines, defined).spans(0, len(lines), (), -1)
        return [self._section(lines, span) for span in _merged(lines, spans)]

    def _section(self, lines: Sequence[str], span: _Span) -> Document:
        section = lines[span.start : span.end]
        above = next((at for at, line in enumerate(section) if line.strip()), 0)
        first, last = span.start + above + 1, span.start + len("\n".join(section).rstrip().split("\n"))
        code = "\n".join(section[above:]).rstrip()
        info = f"{self._language or 'text'} lines {first}-{last}"
        return section_document(fenced(code, info), span.names)


class _Splitter:
    """Splits code into nested definitions, by indentation."""

    def __init__(self, lines: Sequence[str], defined: Sequence[Definition]) -> None:
        self._definitions = defined
        self._chars = [*accumulate((len(line) + 1 for line in lines), initial=0)]

    def spans(
        self,
        start: int,
        end: int,
        names: tuple[str, ...],
        indent: int,
        among: Sequence[Definition] | None = None,
    ) -> Iterator[_Span]:
        """Split lines `start` to `end`, which are inside `names`; `among` are the definitions there."""
        inside = [one for one in (self._definitions if among is None else among) if one.indent > indent]
        is_whole = bool(names) and self._chars[end] - self._chars[start] <= _WHOLE_CHARS
        if not inside or is_whole or len(names) >= _MAX_LEVELS:
            yield _Span(start, end, names)
            return
        outermost = min(one.indent for one in inside)
        heads = [at for at, one in enumerate(inside) if one.indent == outermost]
        yield _Span(start, max(start, inside[heads[0]].start), names)
        for head, following in zip(heads, [*heads[1:], len(inside)], strict=True):
            one = inside[head]
            last = inside[following].start if following < len(inside) else end
            below = inside[head + 1 : following]
            yield from self.spans(max(start, one.start), last, (*names, one.name), outermost, below)


def _merged(lines: Sequence[str], spans: Iterator[_Span]) -> Iterator[_Span]:
    """Drop empty spans and merge neighbours with the same names."""
    filled = (span for span in spans if any(line.strip() for line in lines[span.start : span.end]))
    for names, group in groupby(filled, lambda span: span.names):
        same = [*group]
        yield _Span(same[0].start, same[-1].end, names)
