"""Split a text into units that are quoted whole: a table, a question with its answer, a code block with its
lead-in, an article of a set of rules, a paragraph; table rows one by one; and the parts of a chunk that have
their own vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from core.citing.passages import (
    MAX_PASSAGE_CHARS,
    Span,
    is_answerless,
    is_remedy,
    sentences,
)
from core.knowledge import Candidate, Chunk
from core.relevance.meaning import parts_in
from core.relevance.names import short_codes
from core.relevance.query import Query
from core.relevance.sparse import WeightedTerm, presence
from core.text import ITEM as LIST_ITEM
from core.text import QUESTION_WORD, Block, BlockKind, Line, blocks_of, holds_chinese, lines_of, open_fence

MAX_FIRST_HEADING_CHARS = 30  # a longer line at the beginning is the title of the whole
MAX_TITLE_CHARS = 80
MAX_TEXT_TITLE_CHARS = 120
MAX_UNITS = 400  # of one text


class UnitKind(Enum):
    TEXT = "text"
    PAIR = "pair"
    ARTICLE = "article"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Unit:
    """`text[start:end]`. `rows` are a table's below its ruler, `columns` its header cells; `head` is what the
    unit stands below: a heading, or its lead-in line."""

    kind: UnitKind
    start: int
    end: int
    columns: tuple[str, ...] = ()
    rows: tuple[Line, ...] = ()
    head: str = ""


_QUESTION = re.compile(
    r"[ \t]*(?:[-*+>]\s+)?(?:\*\*|__)?(?:#{1,6}\s*)?(?:\*\*)?"
    rf"(?:{QUESTION_WORD}\s*\d*\s*[:：.、．]\s*\S|.{{2,150}}[?？]\s*(?:\*\*|__)?\s*$)"
)
_ARTICLE = re.compile(
    r"[ \t]*(?:\*\*)?(?:第[一二三四五六七八九十百零〇\d]{1,6}条|\d{1,2}(?:\.\d{1,3}){1,3}(?=[ \t\u3000])"
    r"|§\s*\d+|(?:Article|Section|Rule|Clause)\s+\d+)"
)


def units_of(text: str) -> list[Unit]:
    """Return the units in order, at most MAX_UNITS; if all fit, they cover all non-blank text."""
    units: list[Unit] = []
    for block in blocks_of(text):
        units.extend(_of_block(text, block))
        if len(units) > MAX_UNITS:
            break
    return list(_joined(text, units[:MAX_UNITS], _together))


ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)、])\s")
_LED_IN = re.compile(rf"{ITEM.pattern}|[ \t]*(?:\$\$|\\\[)")  # a list or a formula


def quotable_units(text: str) -> list[Unit]:
    """Return the units as quoted: joined if one needs the other, each with the line that heads it, numbered
    points one by one, and without those that say nothing, unless all do."""
    units = [*_joined(text, units_of(text), _quoted_together)]
    return [point for unit in _headed(text, units) for point in _points(text, unit)] or units


def indexed_parts(chunk: Chunk) -> list[str]:
    """Return what is embedded besides a chunk that is a sequence of statements, each with its heading:
    articles, questions with answers, list items. Empty for prose, a table or code."""
    return [replace(chunk, text=part).indexed_text for part in _parts(chunk.text)]


def nearest_part(query: Query, candidate: Candidate) -> str:
    """Return the text of the chunk's indexed part whose vector is nearest to the question; "" if it has none,
    or none are known."""
    form, text = np.asarray(query.forms[query.meant].dense, np.float32), candidate.chunk.text
    vectors, parts = parts_in(candidate.signs, len(form)), _parts(text)
    if vectors is None or len(vectors) != len(parts):
        return ""
    nearest, units = (parts[at] for at in np.argsort(-(vectors @ form), kind="stable")), quotable_units(text)
    held = (part for part in nearest if any(unit.start <= text.find(part) < unit.end for unit in units))
    return next(held, "")


def _headed(text: str, units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield units with content, each with the last heading before it and the line right above it."""
    heading = lead_in = ""
    for unit, following in zip(units, [*units[1:], None], strict=False):
        says = text[unit.start : unit.end].strip()
        leading = _lead_in(text, unit, following) if following else ""
        if (leading == says and not _STOPPED.search(says)) or _says_nothing(text, unit):
            pass
        elif _is_heading(text, unit):
            heading = says
        elif not _is_title_of_text(text, unit):
            # a paragraph that begins with its own heading (**Safety** Wear gloves.) starts a new section
            heading = "" if _MARKED_HEADING.match(says) else heading
            yield replace(unit, head="\n".join(filter(None, (heading, lead_in))))
        lead_in = leading


def _says_nothing(text: str, unit: Unit) -> bool:
    is_text = unit.kind is UnitKind.TEXT
    says = text[unit.start : unit.end].strip()
    return is_text and bool(is_answerless(text, Span(unit.start, unit.end)) or _FORMULA.fullmatch(says))


def _lead_in(text: str, unit: Unit, following: Unit) -> str:
    """Return the unit's last sentence if it leads in to the following list or table: it has no final stop, or
    only a line break separates it from the table."""
    is_table = following.kind is UnitKind.TABLE
    adjoins = text[unit.end : following.start].count("\n") == 1
    is_list = adjoins and LIST_ITEM.match(text, following.start)
    if unit.kind in (UnitKind.TABLE, UnitKind.CODE) or not (is_table or is_list):
        return ""
    last = sentences(text[unit.start : unit.end])[-1]
    line = text[unit.start + last.start : unit.start + last.end]
    leads_in = (is_table and adjoins) or not _STOPPED.search(line)
    return line if leads_in and "\n" not in line and len(line) <= MAX_TEXT_TITLE_CHARS else ""


COLONS = (":", "：")
_STOPPED = re.compile(r"[.。!！;；][”’\"')）\]】*_]*$")
_ENDED = re.compile(r"[.。!！?？;；:：][”’\"')）\]】*_]*$")
_CODED_POINT = re.compile(
    r"[ \t]*(?:[（(][一二三四五六七八九十]{1,3}[）)]|[A-Z]{1,4}-?\d{1,3}\b|\d{1,2}[ \t]?\([a-z]\))"
)
_NUMBERED_HEADING = re.compile(r"([一二三四五六七八九十]{1,3}、)|(第[一二三四五六七八九十\d]{1,3}[章节篇部])")
_MARKED_HEADING = re.compile(r"(\*\*|__)(?:(?!\1).)+\1|={2,}\s.+\s={2,}|【[^】]+】")
_FORMULA = re.compile(
    r"(?:Dear|Hi|Hello|Hey|Good (?:morning|afternoon|evening))\b[^\n.:]{0,60}[,:!]|Dear [^\n.:]{1,60}"
    r"|[^\n，。；]{0,6}(?:尊敬的|亲爱的|各|全体)[^\n。；]{1,30}[：，！]|[^\n。；]{0,20}[您你]好[：，！。]?"
    r"|(?:(?:(?:With |Many )?(?:(?:kind|best|warm)(?:est)? )?(?:regards|wishes|greetings|thanks)|Cheers"
    r"|(?:Yours )?(?:sincerely|faithfully|truly)|All the best)\b[^\n.\d]{0,20}[,.!]?|此致|敬礼|祝好)"
    r"(?:\n[^\n\d@]{1,40}){0,4}"
    r"|特此(?:通[知告]|公告|函告|说明)。?",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"\d+\.\d+[ \t]+[a-z°%€$£¥\d]")
_NUMBER = re.compile(r"\D{0,12}(\d+(?:\.\d+)*)")


def _is_heading(text: str, unit: Unit) -> bool:
    """Whether this line heads what follows: by its markup, by its number, or because it ends no sentence and
    has prose below. At the beginning, more than a few words are the title of the whole."""
    line = text[unit.start : unit.end].strip()
    is_line = "\n" not in line and len(line) <= MAX_TITLE_CHARS and not _ENDED.search(line)
    if unit.kind in (UnitKind.TABLE, UnitKind.CODE) or not is_line:
        return False
    if _MARKED_HEADING.fullmatch(line) or _is_title(text, line):
        return True
    if number := _NUMBERED_HEADING.match(line):
        before, below = text[: unit.start].rstrip().rpartition("\n")[2], text[unit.end :].lstrip()
        beside = filter(None, map(_NUMBERED_HEADING.match, (before, below)))
        return all(each.lastindex != number.lastindex for each in beside)
    if _LABEL.search(line) or _is_point(line) or not _is_above_prose(text, unit):
        return False
    return bool(text[: unit.start].strip()) or (
        len(line) <= MAX_FIRST_HEADING_CHARS and not any(map(str.isdigit, line))
    )


def _is_point(line: str) -> bool:
    return bool(LIST_ITEM.match(line) or _CODED_POINT.match(line))


_LABEL = re.compile(r"[：:]\s*\S")


def _is_above_prose(text: str, unit: Unit) -> bool:
    below = text[unit.end : unit.end + MAX_PASSAGE_CHARS]
    paragraph = below.strip().partition("\n\n")[0]
    is_prose = len(paragraph) > MAX_TITLE_CHARS or _ENDED.search(paragraph)
    return below.startswith("\n\n") and bool(is_prose)


def _is_title(text: str, part: str) -> bool:
    """Whether this is a line, not a sentence, right above an article, or above one whose number starts with
    its own: 2 above 2.1."""
    start = text.find(part) + len(part)
    following = text[start : start + MAX_TITLE_CHARS].lstrip()
    if "\n" in part or len(part) > MAX_TITLE_CHARS or _ENDED.search(part) or not _ARTICLE.match(following):
        return False
    own, below = _NUMBER.match(part), _NUMBER.match(following)
    return not _ARTICLE.match(part) or bool(own and below and below[1].startswith(f"{own[1]}."))


def _is_title_of_text(text: str, unit: Unit) -> bool:
    """Whether these are one or two lines, not a sentence, at the beginning with prose below: they name the
    subject, so they match nearly every question. Not a label over its value (Plant manager / Rolf Adler)."""
    title = text[: unit.end].strip()
    is_short = len(title) <= MAX_TEXT_TITLE_CHARS and title.count("\n") <= 1
    if unit.kind is not UnitKind.TEXT or text[: unit.start].strip() or not is_short:
        return False
    return not (_ENDED.search(title) or _is_point(title)) and _is_above_prose(text, unit)


def _points(text: str, unit: Unit) -> Iterator[Unit]:
    """Yield coded points (FR-04, （三）) one by one below their common lead-in; others, such as steps, stay
    together."""
    lines = lines_of(text, unit.start, unit.end)
    starts = [line.start for line in lines if _CODED_POINT.match(text, line.start)] or [unit.end]
    lead = text[unit.start : starts[0]].strip()
    leads_in = "\n" not in lead and len(lead) <= MAX_TITLE_CHARS and not _STOPPED.search(lead)
    if unit.kind is not UnitKind.TEXT or len(starts) == 1 or not leads_in:
        yield unit
        return
    head = "\n".join(filter(None, (unit.head, lead)))
    for start, end in zip(starts, [*starts[1:], unit.end + 1], strict=True):
        yield replace(unit, start=start, end=end - 1, head=head)


def _parts(text: str) -> list[str]:
    parts = [part for unit in units_of(text) for part in _items(text, unit)]
    parts = [(in_turn, part.strip()) for in_turn, part in parts if any(map(str.isalnum, part))]
    several = len(parts) > 1 and any(in_turn for in_turn, _ in parts)
    return [part for _, part in parts] if several else []


def _items(text: str, unit: Unit) -> list[tuple[bool, str]]:
    whole = text[unit.start : unit.end]
    lines = [(ITEM.match(line) is not None, line) for line in whole.split("\n")]
    if unit.kind is UnitKind.TEXT and sum(is_item for is_item, _ in lines) > 1:
        return lines
    return [(unit.kind in (UnitKind.ARTICLE, UnitKind.PAIR), whole)]


def _of_block(text: str, block: Block) -> Iterator[Unit]:
    match block.kind:
        case BlockKind.TABLE:
            yield _table(text, block)
        case BlockKind.CODE:
            yield Unit(UnitKind.CODE, block.start, block.end)
        case _:
            yield from _of_lines(text, block)


def _of_lines(text: str, block: Block) -> Iterator[Unit]:
    """Cut a paragraph or list before each line that begins an article, or a question with its answer."""
    start, kind = block.start, UnitKind.TEXT
    for line in lines_of(text, block.start, block.end):
        begins = _begins(text, line)
        if begins and line.start > start:
            yield Unit(kind, start, line.start - 1)
            start = line.start
        kind = begins or (kind if line.start > start else UnitKind.TEXT)
    yield Unit(kind, start, block.end)


def _begins(text: str, line: Line) -> UnitKind | None:
    if _ARTICLE.match(text, line.start, line.end):
        return UnitKind.ARTICLE
    return UnitKind.PAIR if _QUESTION.match(text, line.start, line.end) else None


def _joined(text: str, units: Sequence[Unit], together: Together) -> Iterator[Unit]:
    """Join neighbours: `together` returns the kind of the joined unit, None to keep them apart."""
    waiting: Unit | None = None
    for unit in units:
        kind = together(text, waiting, unit) if waiting else None
        if waiting and kind:
            waiting = Unit(kind, waiting.start, unit.end)
            continue
        if waiting:
            yield waiting
        waiting = unit
    if waiting:
        yield waiting


Together = Callable[[str, Unit, Unit], UnitKind | None]


def _together(text: str, one: Unit, following: Unit) -> UnitKind | None:
    """Join a lone question with what follows it, a lead-in line with its code, list or formula."""
    says = text[one.start : one.end].strip()
    if one.kind is UnitKind.PAIR and "\n" not in says:
        return UnitKind.PAIR if following.kind in (UnitKind.TEXT, UnitKind.ARTICLE) else None
    if one.kind is not UnitKind.TEXT or not says.endswith(COLONS):
        return None
    is_led_in = "\n" not in says and _LED_IN.match(text, following.start)
    goes_on = following.kind is UnitKind.CODE or (following.kind is UnitKind.TEXT and is_led_in)
    return following.kind if goes_on else None


def _quoted_together(text: str, one: Unit, following: Unit) -> UnitKind | None:
    """Join an article's title with the text below it, a sentence with a number that begins the next line (a
    maximum of / 47.8 °C), and a prohibition with what to do instead. Not applied to embedded parts: those of
    stored chunks must stay the same."""
    says = text[one.start : one.end].strip()
    is_line = "\n" not in says and len(says) <= MAX_TITLE_CHARS
    if one.kind is UnitKind.ARTICLE and is_line and (says.endswith(COLONS) or not _ENDED.search(says)):
        heads = following.kind is UnitKind.TEXT and not _is_heading(text, following)
        return UnitKind.ARTICLE if heads else None
    if one.kind is following.kind is UnitKind.TEXT:
        return UnitKind.TEXT if _comes_with_remedy(text, one, following) else None
    adjoins = text[one.end : following.start] == "\n" and not _ENDED.search(says)
    is_amount = following.kind is UnitKind.ARTICLE and _AMOUNT.match(text, following.start)
    return one.kind if adjoins and is_amount and one.kind in (UnitKind.TEXT, UnitKind.ARTICLE) else None


def _comes_with_remedy(text: str, one: Unit, following: Unit) -> bool:
    if following.end - one.start > MAX_PASSAGE_CHARS or _is_heading(text, following):
        return False
    says, below = text[one.start : one.end], text[following.start : following.end]
    last, first = sentences(says)[-1], sentences(below)[0]
    return is_remedy(says[last.start : last.end], below[first.start : first.end])


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of a list, or the rows of a table without totals; `above` says what they are, `beside` names
    the table's other columns."""

    above: str
    items: tuple[str, ...]
    beside: str = ""

    def is_amount_of(self, terms: Sequence[WeightedTerm], measure: str | None) -> bool:
        """Whether the items state amounts of it, or another column is named so: 25 days, 20 人."""
        amounts = [match[1] for item in self.items for match in _MEASURED.finditer(item)]
        if measure and any(amount.startswith(measure) for amount in amounts):
            return True
        return any(presence(terms, "\n".join((self.beside, *([] if measure else amounts)))))


_MEASURED = re.compile(r"\d[\d.,]* ?(\w+(?: \w+)?)")
_SUM = re.compile(r"\W*(?:[合总總小][ \u3000]*[计計]|(?:sub)?total|sum)", re.IGNORECASE)
_NUMBERING = re.compile(r"(?:[序编編][号號]|no|nr|#|)\W*$", re.IGNORECASE)


def listing_of(text: str, unit: Unit) -> Listing | None:
    """Return None if the unit is not a listing, or may continue before or after it."""
    around = (text[: unit.start].rstrip().rpartition("\n")[2], text[unit.end :].lstrip())
    if unit.rows:
        return None if any(each.startswith("|") for each in around) else _listing_of_rows(text, unit)
    lines = text[unit.start : unit.end].strip().splitlines()
    items = [(match, line) for line in lines if (match := LIST_ITEM.match(line))]
    is_text = unit.kind in (UnitKind.TEXT, UnitKind.ARTICLE)
    if not is_text or not items or any(map(LIST_ITEM.match, around)):
        return None
    first, least = lines.index(items[0][1]), min(match.end(1) for match, _ in items)
    outermost = (line[match.end() :] for match, line in items if match.end(1) == least)
    return Listing("\n".join((unit.head, *lines[:first])), tuple(outermost))


def _listing_of_rows(text: str, unit: Unit) -> Listing | None:
    """List rows by the first column that does not just number them; None if several rows share a name."""
    named = 1 + bool(_NUMBERING.match(unit.columns[0]))
    rows = [cells_of(text[row.start : row.end]) for row in unit.rows]
    rows = [cells for cells in rows if not any(map(_SUM.match, cells[:named]))]
    if len({"".join(cells[:named][-1:]) for cells in rows}) < len(rows):
        return None
    above, beside = (unit.head, *unit.columns[:named]), unit.columns[named:]
    return Listing("\n".join(above), tuple(map(" | ".join, rows)), "\n".join(beside))


def _table(text: str, block: Block) -> Unit:
    head, _, *rows = lines_of(text, block.start, block.end)
    return Unit(
        UnitKind.TABLE, block.start, block.end, tuple(cells_of(text[head.start : head.end])), tuple(rows)
    )


_PIPE = re.compile(r"(?<!\\)\|")


def cells_of(row: str) -> list[str]:
    """Split a Markdown table row into cells."""
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(row.strip().strip("|"))]


def row_of(columns: Sequence[str], cells: Sequence[str], between: str, colon: str) -> str:
    """Put each cell after the name of its column."""
    named = [(columns[at] if at < len(columns) else "", cell) for at, cell in enumerate(cells) if cell]
    return between.join(f"{name}{colon}{cell}" if name else cell for name, cell in named)


def under(head: str, text: str) -> str:
    return f"{head}\n\n{text}" if head and text else text


def beginning(text: str, longest: int) -> str:
    """Return whole lines and close an open fence: a text may be cut inside a code block, here or earlier; one
    that ends with a bare fence began inside."""
    text = text.strip()
    if len(text) > longest:
        end = text.rfind("\n", 0, longest)
        text = f"{text[: end if end > 0 else longest].rstrip()}\n…"
    fence = open_fence(text)
    if not fence:
        return text
    return f"{fence}\n{text}" if text.endswith(f"\n{fence}") else f"{text}\n{fence}"


def with_what_follows(text: str, part: str, longest: int) -> str:
    """`text` begins with `part`: extend it by the lines up to the next item."""
    for line in text[len(part) :].splitlines(keepends=True):
        if ITEM.match(line) or len(part) + len(line) > longest:
            break
        part += line
    return part.strip()


@dataclass(frozen=True, slots=True)
class Quotable:
    """A unit of a passage, or one row of its table. `says` is its text, for a row with the column names;
    `above` what stands over it: the heading, and its table's lead-in; `codes` are those of a row's first
    cell, and others that fill a cell."""

    passage: int
    unit: Unit
    says: str
    above: str
    codes: frozenset[str] = frozenset()


def quotables(passage: int, heading: str, text: str) -> Iterator[Quotable]:
    for unit in quotable_units(text):
        above = f"{heading}\n{unit.head}"
        if unit.kind is UnitKind.TABLE and unit.rows:
            marks = ("；", "：") if holds_chinese("".join(unit.columns)) else ("; ", ": ")
            for row in unit.rows:
                first, *others = cells = cells_of(text[row.start : row.end])
                codes = short_codes(first).union(*(short_codes(each) & {each.lower()} for each in others))
                yield Quotable(passage, unit, row_of(unit.columns, cells, *marks), above, codes)
        else:
            yield Quotable(passage, unit, text[unit.start : unit.end], above)
