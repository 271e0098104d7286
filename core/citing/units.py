"""A text as units that are quoted whole: a table, a question with its answer, a block of code with what leads
in to it, an article of a set of rules, a paragraph; and the parts of a chunk that have their own vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from core.citing.passages import Span, is_answerless
from core.knowledge import Candidate, Chunk
from core.relevance.query import Query
from core.relevance.tokens import parts_in
from core.text import Block, BlockKind, Line, blocks_of, lines_of

LONGEST_TITLE = 80
LONGEST_TEXT_TITLE = 120
MOST_UNITS = 400  # of one text


class UnitKind(Enum):
    TEXT = "text"
    PAIR = "pair"
    ARTICLE = "article"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Unit:
    """`text[start:end]`. `rows` are a table's below its ruler, `columns` what its header calls them."""

    kind: UnitKind
    start: int
    end: int
    columns: tuple[str, ...] = ()
    rows: tuple[Line, ...] = ()


_QUESTION = re.compile(
    r"[ \t]*(?:[-*+>]\s+)?(?:\*\*|__)?(?:#{1,6}\s*)?(?:\*\*)?"
    r"(?:(?:Q|问|問|Question|问题)\s*\d*\s*[:：.、．]\s*\S|.{2,150}[?？]\s*(?:\*\*|__)?\s*$)"
)
_ARTICLE = re.compile(
    r"[ \t]*(?:\*\*)?(?:第[一二三四五六七八九十百零〇\d]{1,6}条|\d{1,2}(?:\.\d{1,3}){1,3}(?=[ \t\u3000])"
    r"|§\s*\d+|(?:Article|Section|Rule|Clause)\s+\d+)"
)


def units_of(text: str) -> list[Unit]:
    """In order, the first MOST_UNITS; those of a text that has no more hold all of it that is not blank."""
    units: list[Unit] = []
    for block in blocks_of(text):
        units.extend(_of_block(text, block))
        if len(units) > MOST_UNITS:
            break
    return list(_joined(text, units[:MOST_UNITS], _together))


ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)、])\s")
_LED_IN = re.compile(rf"{ITEM.pattern}|[ \t]*(?:\$\$|\\\[)")  # a list, or a formula


def quotable_units(text: str) -> list[Unit]:
    """The same as they are quoted: joined where one says little without the other, and without those that say
    nothing, unless all do."""
    units = [*_joined(text, units_of(text), _quoted_together)]
    return [unit for unit in units if not _says_nothing(text, unit)] or units


def indexed_parts(chunk: Chunk) -> list[str]:
    """What is embedded beside a chunk that says one thing after the other, each with its heading: articles,
    questions with their answers, items of a list. None of prose, a table or code."""
    return [replace(chunk, text=part).indexed_text for part in _parts(chunk.text)]


def nearest_part(query: Query, candidate: Candidate) -> str:
    """Of the chunk's indexed parts, the text of the one whose vector is nearest to the question; "" where it
    has none, or where none are known."""
    form, text = np.asarray(query.forms[query.meant].dense, np.float32), candidate.chunk.text
    vectors, parts = parts_in(candidate.signs, len(form)), _parts(text)
    if vectors is None or len(vectors) != len(parts):
        return ""
    nearest = (parts[at] for at in np.argsort(-(vectors @ form), kind="stable"))
    return next((part for part in nearest if not _is_title(text, part)), "")


def _says_nothing(text: str, unit: Unit) -> bool:
    if unit.kind is UnitKind.TEXT and is_answerless(text, Span(unit.start, unit.end)):
        return True
    part = text[unit.start : unit.end].strip()
    leads_in = part.endswith(COLONS) and "\n" not in part and len(part) <= LONGEST_TITLE
    is_above_table = leads_in and text[unit.end :].lstrip().startswith("|")
    return is_above_table or _is_title(text, part) or _is_title_of_text(text, unit)


COLONS = (":", "：")
_STOPS = (".", "。", "!", "！", "?", "？", ";", "；")
_ENDS = (*_STOPS, *COLONS)
_AMOUNT = re.compile(r"\d+\.\d+[ \t]+[a-z°%€$£¥\d]")
_NUMBER = re.compile(r"\D{0,12}(\d+(?:\.\d+)*)")


def _is_title(text: str, part: str) -> bool:
    """A line that is no sentence, right above an article, or above one that its own number begins: 2 above
    2.1."""
    start = text.find(part) + len(part)
    following = text[start : start + LONGEST_TITLE].lstrip()
    if "\n" in part or len(part) > LONGEST_TITLE or part.endswith(_ENDS) or not _ARTICLE.match(following):
        return False
    own, below = _NUMBER.match(part), _NUMBER.match(following)
    return not _ARTICLE.match(part) or bool(own and below and below[1].startswith(f"{own[1]}."))


def _is_title_of_text(text: str, unit: Unit) -> bool:
    """One or two lines that are no sentence, at the beginning and with prose below: they name the subject, so
    they have words of nearly every question. A label over its value (Plant manager / Rolf Adler) is none."""
    title, below = text[: unit.end].strip(), text[unit.end :]
    is_short = len(title) <= LONGEST_TEXT_TITLE and title.count("\n") <= 1 and not title.endswith(_ENDS)
    if unit.kind is not UnitKind.TEXT or text[: unit.start].strip() or not is_short or ITEM.match(title):
        return False
    paragraph = below.strip().partition("\n\n")[0]
    stands_apart = below.startswith("\n\n")
    return stands_apart and (len(paragraph) > LONGEST_TITLE or paragraph.endswith(_STOPS))


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
    """A paragraph or list, cut before each line that begins an article, or a question with its answer."""
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
    """`together` says what kind a unit and the one behind it are as one, None where they are two."""
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
    """A question that stands alone takes what follows it, a line the code, list or formula it leads in to."""
    says = text[one.start : one.end].strip()
    if one.kind is UnitKind.PAIR and "\n" not in says:
        return UnitKind.PAIR if following.kind in (UnitKind.TEXT, UnitKind.ARTICLE) else None
    if one.kind is not UnitKind.TEXT or not says.endswith(COLONS):
        return None
    is_led_in = "\n" not in says and _LED_IN.match(text, following.start)
    goes_on = following.kind is UnitKind.CODE or (following.kind is UnitKind.TEXT and is_led_in)
    return following.kind if goes_on else None


def _quoted_together(text: str, one: Unit, following: Unit) -> UnitKind | None:
    """An article's title takes what stands below it, and a sentence goes on after a number that begins a line
    (a maximum of / 47.8 °C). Parts are embedded without this: those of stored chunks have to stay."""
    says = text[one.start : one.end].strip()
    is_line = "\n" not in says and len(says) <= LONGEST_TITLE
    if one.kind is UnitKind.ARTICLE and is_line and not says.endswith(_STOPS):
        return UnitKind.ARTICLE if following.kind is UnitKind.TEXT else None
    adjoins = text[one.end : following.start] == "\n" and not says.endswith(_ENDS)
    is_amount = following.kind is UnitKind.ARTICLE and _AMOUNT.match(text, following.start)
    return one.kind if adjoins and is_amount and one.kind in (UnitKind.TEXT, UnitKind.ARTICLE) else None


def _table(text: str, block: Block) -> Unit:
    head, _, *rows = lines_of(text, block.start, block.end)
    return Unit(
        UnitKind.TABLE, block.start, block.end, tuple(cells_of(text[head.start : head.end])), tuple(rows)
    )


_PIPE = re.compile(r"(?<!\\)\|")


def cells_of(row: str) -> list[str]:
    """Of a Markdown table's row."""
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(row.strip().strip("|"))]
