"""Plain text: a section for each line that looks like a heading, and for each message of a mail thread."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, pairwise, takewhile, zip_longest

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.text import close_gaps, is_spaced_out
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, width

_MAX_LINE_CHARS = 400
_MAX_HEADING_WIDTH = 70  # Han characters count twice
_ENDS_SENTENCE = tuple("。.!！;；,，、")
_HAN_NUMBER = r"[一二三四五六七八九十百]{1,4}"
_LABEL = rf"(?:{_HAN_NUMBER}|\d{{1,2}}|[A-Z]|[IVXL]{{1,7}})"
# Outermost first. A line has the first form that it matches.
_FORMS = {
    "chapter": re.compile(
        rf"第\s?{_LABEL}\s?[章编篇部]|(?:议题{_LABEL}|附[件录表]{_LABEL}?)(?=[\s:：、])"
        rf"|(?i:chapter|part|section|annex|appendix|agenda item)\s{_LABEL}(?=\s*(?:[:.–—-]|$)|\s[A-Z(])"
    ),
    "section": re.compile(rf"第\s?{_LABEL}\s?节(?=[\s:：]|$)"),
    "framed": re.compile(r"[-=*_~]{3,}\s*(?P<title>\w.*?)\s*[-=*_~]{3,}$|【(?P<boxed>[^【】]{1,40})】"),
    "capitals": re.compile(r"[A-Z][^a-z()]{4,}(?:\([^()]*\))?$"),
    "han": re.compile(rf"{_HAN_NUMBER}、."),
    "in parentheses": re.compile(rf"[(（]{_HAN_NUMBER}[)）]."),
    "number": re.compile(r"(?P<number>\d{1,2})(?:[.、．)]\s*|\s+)(?=[^\W\d])"),
}
_MUST_STAND_ALONE = ("capitals", "number")  # below an empty line
_MAY_BE_TITLES = ("framed", "capitals")
_MIN_SHARE_WITH_TEXT, _MIN_SHARE_DIFFERENT = 0.6, 0.8  # of the headings of a form
_CONTENTS = ("目录", "目錄", "目次", "contents", "tableofcontents")
_MIN_ENTRIES, _MIN_SHARE_APART = 3, 0.3  # of a table of contents; a chapter may begin with its first section
_WORDS, _PAGE_NUMBER = re.compile(r"[^\W_]+"), re.compile(r"\d{1,3}|[ivxlc]{1,6}")
_LEADERS = ("...", ". .", "…", "··", "\t")
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
        headings, contents = _headings(lines)
        each = sorted([*headings, *_messages(lines, 1)], key=lambda one: (one.at, one.level))
        _add(outline, lines, _titled(lines, each, contents))
        return outline.finish()


def heading_levels(texts: Sequence[str], *, are_lines: bool = False) -> dict[int, int]:
    """The levels of those texts that are headings by their words alone, by position. `texts` are paragraphs,
    or the lines of some."""
    apart = 1 if are_lines else 2
    lines = [*chain.from_iterable((" ".join(text.split()), "")[:apart] for text in texts)]
    headings, contents = _headings(lines)
    headings.sort(key=lambda one: one.at)
    return {one.at // apart: one.level for one in _titled(lines, headings, contents) if not one.stays}


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


def _titled(lines: Sequence[str], headings: Sequence[_Heading], contents: Set[int]) -> list[_Heading]:
    """Make the first line the title, if there are headings below it; in capitals, it may take two lines."""
    at = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not headings or at in contents:
        return [*headings]
    top = (line.strip() for row, line in enumerate(lines[at : at + 2], start=at) if row not in contents)
    capitals = [*takewhile(_FORMS["capitals"].match, top)]
    title = _Heading(at, 1, " ".join(capitals) or lines[at].strip(), "title", rows=max(1, len(capitals)))
    below = [one for one in headings if one.at >= at + title.rows]
    first = headings[0]
    if first.at == at and first.form == "framed":
        title = replace(first, level=1)
    is_title = first.at > at or (first.form in _MAY_BE_TITLES and not first.stays)
    is_title = is_title and width(lines[at].strip()) <= _MAX_HEADING_WIDTH
    return [title, *below] if is_title and below else [*headings]


def _headings(lines: Sequence[str]) -> tuple[list[_Heading], Set[int]]:
    """The headings, form by form; and the lines of tables of contents."""
    likely = [one for at in range(len(lines)) if (one := _heading(lines, at))]
    contents = _contents(lines) if len(likely) > _MIN_ENTRIES else frozenset[int]()
    headings: list[_Heading] = []
    for form in _FORMS:
        own = _counted([one for one in likely if one.form == form and one.at not in contents])
        if own and _have_text(lines, own):
            headings += own
    return headings, contents


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line as one of a table of contents: its letters, with and without a page number. `is_led`: dots lead
    to the number."""

    at: int
    forms: tuple[str, ...]
    is_led: bool


def _contents(lines: Sequence[str]) -> Set[int]:
    """The lines of tables of contents, with the word above them: consecutive lines that occur again further
    down, each as one or two lines, in the same order and apart from each other. Counted as headings, they
    would look like a list."""
    entries = [_entry(lines, at) for at in range(len(lines)) if not _separates(lines[at])]
    places = defaultdict[str, list[int]](list)
    for place, (entry, below) in enumerate(zip_longest(entries, entries[1:])):
        for form in {entry.forms[0], entry.forms[0] + below.forms[0]} if below else {entry.forms[0]}:
            if form:
                places[form].append(place)
    contents: set[int] = set()
    start = 0
    while start < len(entries):
        end, again = _listed(entries, places, start)
        apart = sum(below > above + 1 for above, below in pairwise(again))
        if len(again) >= _MIN_ENTRIES and apart >= _MIN_SHARE_APART * (len(again) - 1):
            is_named = start > 0 and entries[start - 1].forms[0] in _CONTENTS
            contents.update(entry.at for entry in entries[start - is_named : end])
        start = max(end, start + 1)
    return contents


def _entry(lines: Sequence[str], at: int) -> _Entry:
    line = lines[at].strip()[:_MAX_LINE_CHARS].casefold()
    words = _WORDS.findall(line)
    has_page = len(words) > 1 and bool(_PAGE_NUMBER.fullmatch(words[-1]))
    forms = ("".join(words), "".join(words[:-1])) if has_page else ("".join(words),)
    return _Entry(at, forms, has_page and any(leader in line for leader in _LEADERS))


def _listed(
    entries: Sequence[_Entry], places: Mapping[str, Sequence[int]], start: int
) -> tuple[int, list[int]]:
    """Where the entries from `start` end that occur again in their order, and the places where they do."""
    again: list[int] = []
    end = start
    while end < (again[0] if again else len(entries)):
        below = again[-1] if again else end
        each = (place for form in entries[end].forms if (place := _below(places.get(form, ()), below)))
        place = next(each, 0)
        if not (place or entries[end].is_led):
            break
        again += [place] if place else []
        end += 1
    return end, again


def _below(places: Sequence[int], place: int) -> int:
    """The first of these places below this one; 0 if there is none."""
    at = bisect_right(places, place)
    return places[at] if at < len(places) else 0


def _heading(lines: Sequence[str], at: int) -> _Heading | None:
    line = lines[at].strip()[:_MAX_LINE_CHARS]
    each = ((form, pattern.match(line)) for form, pattern in _FORMS.items())
    form, match = next(((form, match) for form, match in each if match), ("", None))
    if match is None:
        return None
    parts = match.groupdict()
    title = parts.get("boxed") or parts.get("title") or line
    stays = bool(parts.get("boxed")) and match.end() < len(line)
    is_alone = at == 0 or not (lines[at - 1].strip() or lines[at][:1].isspace())
    is_stopped = is_alone and line[match.end() :] == "."  # CHAPTER I.
    ends_sentence = line.endswith(_ENDS_SENTENCE) and not is_stopped
    is_short = width(line) <= _MAX_HEADING_WIDTH and not ends_sentence
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


# Where titles are among the lines of a page.

_MAX_TITLE_LINES = 5
_NUMBERING = re.compile(
    r"\s*(?:第\s*[\d一二三四五六七八九十百]+\s*[章节條条篇部]|[一二三四五六七八九十]+(?=[、.．])"
    r"|(?:chapter|appendix|section|part)\s+[\dA-Z]{1,4}\b|(?:table|figure|[图表])\s*\d+(?:[.-]\d+)*"
    r"|(?:[A-Z]\.?)?\d+(?:\.\d+)*|[A-Z]\b)[\s.．、:：)）]*",
    re.IGNORECASE,
)


def place(lines: Sequence[str], titles: Sequence[str]) -> list[tuple[int, int] | None]:
    """For each title in order, the lines [start, end) that contain it, or None."""
    forms = [_forms(line) for line in lines]
    places: list[tuple[int, int] | None] = []
    at = 0
    for title in titles:
        extent = _find(forms, _forms(title), at)
        at = extent[1] if extent else at
        places.append(extent)
    return places


def _find(lines: Sequence[tuple[str, str]], title: tuple[str, str], at: int) -> tuple[int, int] | None:
    """Find a title, which may take several lines of the page."""
    for index in range(at, len(lines)):
        joined = lines[index]
        for end in range(index + 1, min(index + _MAX_TITLE_LINES, len(lines)) + 1):
            if _same(joined, title):
                return index, end
            if end == len(lines) or not joined[0] or not title[0].startswith(joined[0]):
                break
            joined = (joined[0] + lines[end][0], joined[1] + lines[end][0])
    return None


def _same(line: tuple[str, str], title: tuple[str, str]) -> bool:
    return bool(title[1]) and not {*line}.isdisjoint(title)


def _forms(text: str) -> tuple[str, str]:
    """The text's letters, with and without a leading number, which bookmarks often lack."""
    return _letters(text), _letters(_NUMBERING.sub("", text, count=1))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


# Tables of contents, and the index of a book. They hold the words of all its headings: questions would find
# them instead of the text that they refer to.

_REFERENCE = re.compile(
    r"(?P<leader>(?:[.．·・] ?){3,})?(?:(?<!\d)\d{1,4}(?:[-–]\d{1,4})?, ?)*"
    r"(?:(?<!\d)(?<!\d[.,])(?P<page>\d{1,4})(?:[-–]\d{1,4})?|(?<![a-z])[ivxlc]{1,7}),?$"
)
_MAX_BETWEEN = 4  # lines from one entry to the next, of which the longest take three
_MIN_SHARE_CONFIRMED = 0.2  # of the entries; those of figures and tables need not be
_INDEX = ("索引", "index", "register", "indice", "índice")
_MIN_INDEXED, _MIN_SHARE_INDEXED = 12, 0.5  # lines that end with pages, of all in an index


def without_contents(pages: Sequence[list[str]], titles: Sequence[tuple[int, str]]) -> list[list[str]]:
    """Leave out tables of contents, and an index at the end. `titles`: the bookmarks, with their pages from
    0. An entry is confirmed if its words are a title or a line on the page that it names, counted as for the
    other entries: a price list with dots, or a table, is not."""
    lines = [(page, at, line) for page, each in enumerate(pages) for at, line in enumerate(each) if line]
    references = [_reference(line) for _, _, line in lines]
    places = defaultdict[str, set[int]](set)
    texts = ((page, line) for (page, _, line), one in zip(lines, references, strict=True) if not one)
    for page, text in chain(texts, titles):
        for form in _forms(text):
            places[form].add(page)
    listed = {*_entries([page for page, _, _ in lines], references, places)}
    is_named = min(listed, default=0) and _letters(lines[min(listed) - 1][2]) in _CONTENTS
    listed |= {min(listed) - 1} if is_named else set()
    listed |= {*_index([line for _, _, line in lines], references)}
    left_out = {lines[at][:2] for at in listed}
    return [
        [line for at, line in enumerate(each) if (page, at) not in left_out]
        for page, each in enumerate(pages)
    ]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A line that ends with page numbers; `page`: the only one, 0 if there are more. `is_led`: by dots."""

    title: str
    page: int
    is_led: bool


def _reference(line: str) -> _Reference | None:
    line = line[-_MAX_LINE_CHARS:].replace("…", "...")
    match = _REFERENCE.search(line)
    if match is None:
        return None
    page = int(match["page"] or 0) if "," not in match[0] else 0
    return _Reference(line[: match.start()], page, bool(match["leader"]))


def _entries(
    pages: Sequence[int], references: Sequence[_Reference | None], places: Mapping[str, Set[int]]
) -> Iterator[int]:
    """The lines of tables of contents, with those between them: parts of long titles, and headings. Before
    and after the confirmed entries, those with dots on the same page count, too."""
    starts = [
        {page - one.page for form in _forms(one.title) if form for page in places.get(form, ())}
        if one and one.page
        else set[int]()
        for one in references
    ]
    first, _ = next(iter(Counter(chain.from_iterable(starts)).most_common(1)), (0, 0))
    confirmed = {at for at, each in enumerate(starts) if first in each}
    entries = [at for at, one in enumerate(references) if at in confirmed or (one and one.is_led)]
    while entries:
        apart = (at for at, (a, b) in enumerate(pairwise(entries), start=1) if b - a > _MAX_BETWEEN)
        count = next(apart, len(entries))
        run, entries = entries[:count], entries[count:]
        own = [at for at in run if at in confirmed]
        if len(own) >= max(_MIN_ENTRIES, _MIN_SHARE_CONFIRMED * count):
            near = [at for at in run if pages[own[0]] <= pages[at] <= pages[own[-1]]]
            yield from range(near[0], near[-1] + 1)


def _index(lines: Sequence[str], references: Sequence[_Reference | None]) -> Iterator[int]:
    """The lines of an index in the second half of a document, with the word above them."""
    at = len(lines) // 2
    while at < len(lines):
        end = at + 1
        while _letters(lines[at]).endswith(_INDEX) and any(references[end : end + _MAX_BETWEEN]):
            end += 1
        count = sum(map(bool, references[at + 1 : end]))
        yield from range(at, end) if count >= max(_MIN_INDEXED, _MIN_SHARE_INDEXED * (end - at)) else ()
        at = end
