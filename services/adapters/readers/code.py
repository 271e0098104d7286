"""Source code: a fenced block per definition, headed by its name; nothing is left out. Plain text: a section
per line that looks like a heading, and per message of a mail thread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, takewhile

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.text import close_gaps, is_spaced_out, scrub
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, fenced, section_document, width

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


# Plain text: a section for each line that looks like a heading, and for each message of a mail thread.

_MAX_HEADING_WIDTH = 70  # Han characters count twice
_ENDS_SENTENCE = tuple("。.!！;；,，、")
_HAN_NUMBER = r"[一二三四五六七八九十百]{1,4}"
_LABEL = rf"(?:{_HAN_NUMBER}|\d{{1,2}}|[A-Z]|[IVX]{{1,4}})"
# Outermost first. A line has the first form that it matches.
_FORMS = {
    "chapter": re.compile(
        rf"第{_LABEL}[章编篇部]|(?:议题{_LABEL}|附[件录表]{_LABEL}?)(?=[\s:：、])"
        rf"|(?i:chapter|part|section|annex|appendix|agenda item)\s{_LABEL}(?=\s*(?:[:.–—-]|$)|\s[A-Z(])"
    ),
    "framed": re.compile(r"[-=*_~]{3,}\s*(?P<title>\w.*?)\s*[-=*_~]{3,}$|【(?P<boxed>[^【】]{1,40})】"),
    "capitals": re.compile(r"[A-Z][^a-z()]{4,}(?:\([^()]*\))?$"),
    "han": re.compile(rf"{_HAN_NUMBER}、."),
    "in parentheses": re.compile(rf"[(（]{_HAN_NUMBER}[)）]."),
    "number": re.compile(r"(?P<number>\d{1,2})(?:[.、．)]\s*|\s+)(?=[^\W\d])"),
}
_MUST_STAND_ALONE = ("capitals", "number")  # below an empty line
_MAY_BE_TITLES = ("framed", "capitals")
_MIN_SHARE_WITH_TEXT, _MIN_SHARE_DIFFERENT = 0.6, 0.8  # of the headings of a form
_RULE = re.compile(r"[-=*_~]{3,}(?:.{0,20}(?:message|邮件|转发内容)\s*[-=*_~]{3,})?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading of so many `rows` from line `at`. `stays`: they say more, so they are part of the text."""

    at: int
    level: int
    title: str
    form: str
    number: int = 0
    stays: bool = False
    rows: int = 1


class PlainTextReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        text, outline = decode(content), Outline()
        lines = close_gaps(text, spaced_out=is_spaced_out(text)).split("\n")
        headings = sorted([*_headings(lines), *_messages(lines, 1)], key=lambda one: (one.at, one.level))
        _add(outline, lines, _titled(lines, headings))
        return outline.finish()


def heading_levels(texts: Sequence[str], *, are_lines: bool = False) -> dict[int, int]:
    """The levels of those texts that are headings by their words alone, by position. `texts` are paragraphs,
    or the lines of some."""
    apart = 1 if are_lines else 2
    lines = [*chain.from_iterable((" ".join(text.split()), "")[:apart] for text in texts)]
    headings = sorted(_headings(lines), key=lambda one: one.at)
    return {one.at // apart: one.level for one in _titled(lines, headings) if not one.stays}


def add_mail_text(outline: Outline, text: str, level: int) -> None:
    """Add a mail's text; the mails quoted in it become sections below this level."""
    lines = text.split("\n")
    quoted = [*_messages(lines, level + 1)]
    _add(outline, lines, quoted)
    if quoted:
        outline.leave(level + 1)


def _add(outline: Outline, lines: Sequence[str], headings: Sequence[_Heading]) -> None:
    starts = [one.at for one in headings]
    outline.block(_between(lines, 0, starts[0] if starts else len(lines)))
    for one, end in zip(headings, [*starts[1:], len(lines)], strict=False):
        outline.heading(one.level, one.title, in_text=one.stays)
        outline.block(_between(lines, one.at + (0 if one.stays else one.rows), end))


def _between(lines: Sequence[str], start: int, end: int) -> str:
    """Return these lines without rules (-----) around them, which separated them from the others."""
    while start < end and _separates(lines[start]):
        start += 1
    while start < end and _separates(lines[end - 1]):
        end -= 1
    return "\n".join(lines[start:end])


def _separates(line: str) -> bool:
    return not line.strip() or (len(line) <= _MAX_LINE_CHARS and bool(_RULE.match(line.strip())))


def _titled(lines: Sequence[str], headings: Sequence[_Heading]) -> list[_Heading]:
    """Make the first line the title, if there are headings below it; in capitals, it may take two lines."""
    if not headings:
        return []
    at = next(at for at, line in enumerate(lines) if line.strip())
    capitals = [*takewhile(_FORMS["capitals"].match, (line.strip() for line in lines[at : at + 2]))]
    title = _Heading(at, 1, " ".join(capitals) or lines[at].strip(), "title", rows=max(1, len(capitals)))
    below = [one for one in headings if one.at >= at + title.rows]
    first = headings[0]
    if first.at == at and first.form == "framed":
        title = replace(first, level=1)
    is_title = first.at > at or (first.form in _MAY_BE_TITLES and not first.stays)
    is_title = is_title and width(lines[at].strip()) <= _MAX_HEADING_WIDTH
    return [title, *below] if is_title and below else [*headings]


def _headings(lines: Sequence[str]) -> Iterator[_Heading]:
    each = [one for at in range(len(lines)) if (one := _heading(lines, at))]
    for form in _FORMS:
        own = _counted([one for one in each if one.form == form])
        if own and _have_text(lines, own):
            yield from own


def _heading(lines: Sequence[str], at: int) -> _Heading | None:
    line = lines[at].strip()[:_MAX_LINE_CHARS]
    each = ((form, pattern.match(line)) for form, pattern in _FORMS.items())
    form, match = next(((form, match) for form, match in each if match), ("", None))
    if match is None:
        return None
    parts = match.groupdict()
    title = parts.get("boxed") or parts.get("title") or line
    stays = bool(parts.get("boxed")) and match.end() < len(line)
    is_short = width(line) <= _MAX_HEADING_WIDTH and not line.endswith(_ENDS_SENTENCE)
    is_alone = at == 0 or not (lines[at - 1].strip() or lines[at][:1].isspace())
    if not (stays or is_short) or (form in _MUST_STAND_ALONE and not is_alone):
        return None
    level = [*_FORMS].index(form) + 2
    return _Heading(at, level, title, form, int(parts.get("number") or 0), stays)


def _counted(own: Sequence[_Heading]) -> list[_Heading]:
    """Leave out numbers that do not count on from 1, such as amounts, and a single one."""
    if not own or own[0].form != "number":
        return [*own]
    kept: list[_Heading] = []
    for one in own:
        if one.number in (1, kept[-1].number + 1 if kept else 1):
            kept.append(one)
    return kept if len(kept) > 1 else []


def _have_text(lines: Sequence[str], own: Sequence[_Heading]) -> bool:
    """Whether most of these lines of a form have text below them, and hardly any recurs: otherwise it is a
    list, or a chat with each speaker's name."""
    places = {one.at for one in own}
    below = (next((at for at in range(one.at + 1, len(lines)) if lines[at].strip()), None) for one in own)
    have = sum(one.stays or (at is not None and at not in places) for one, at in zip(own, below, strict=True))
    different = len({one.title for one in own})
    return have >= _MIN_SHARE_WITH_TEXT * len(own) and different >= _MIN_SHARE_DIFFERENT * len(own)


# The head of a message: lines of "From: …" and the like, of which one says when it was sent or what about.
_MAX_FIELDS = 8
_FIELD = re.compile(r"(?P<name>[^\W\d_][^\W_ ]{0,20})\s?[:：]\s*(?P<value>.*)")
_SENDER, _SUBJECT = ("from", "发件人", "寄件人"), ("subject", "主题")
_SENT = ("date", "sent", "日期", "时间", "发送日期", "发送时间")
_REPLY = re.compile(r"(?:(?:re|fwd?|回复|答复|转发)\s?[:：]\s*)+", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*<[^<>]*>")


def _messages(lines: Sequence[str], level: int) -> Iterator[_Heading]:
    """Messages by sender and date, below their subject. The whole head stays in the text."""
    for at, line in enumerate(lines):
        if line[:12].lower().lstrip(" \t*").startswith(_SENDER):
            fields = _fields(lines[at : at + _MAX_FIELDS])
            sent, about = (
                next((fields[name] for name in names if name in fields), "") for names in (_SENT, _SUBJECT)
            )
            sender = next((fields[name] for name in _SENDER if name in fields), "")
            if sender and about:
                yield _Heading(at, level, _REPLY.sub("", about), "subject", stays=True)
            if sender and (sent or about):
                title = ", ".join(filter(None, (_ADDRESS.sub("", sender), sent)))
                yield _Heading(at, level + 1, title, "message", stays=True)


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """The fields of consecutive lines, their names in lower case."""
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.match(line.replace("*", "").strip())
        if match is None:
            break
        fields.setdefault(match["name"].lower(), match["value"].strip())
    return fields
