"""What a text holds that is quoted whole: the rows of a table with what their columns are called, a question
with its answer, a block of code, an article of a set of rules, a sentence with what it needs.

A text is read as units; of all passages together those units are chosen that say most of what was asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from core.blocks import Block, BlockKind, Line, blocks_of, lines_of, open_fence
from core.citing.passages import AskedFor, Span, is_answerless, key_spans, presence
from core.relevance.query import Query
from core.relevance.sparse import WeightedTerm, question_terms

MOST_ROWS = 5
LONGEST_CODE = 1_500  # characters that are quoted of a block
LONGEST_UNIT = 600
LONGEST_BEGINNING = 1_000
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
    return list(_paired(text, units[:MOST_UNITS]))


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


def _paired(text: str, units: Sequence[Unit]) -> Iterator[Unit]:
    """A question that stands alone takes what follows it, up to the next of its kind."""
    waiting: Unit | None = None
    for unit in units:
        alone = waiting and not text[waiting.start : waiting.end].strip().count("\n")
        if waiting and alone and unit.kind in (UnitKind.TEXT, UnitKind.ARTICLE):
            yield Unit(UnitKind.PAIR, waiting.start, unit.end)
            waiting = None
            continue
        if waiting:
            yield waiting
        waiting = unit if unit.kind is UnitKind.PAIR else None
        if waiting is None:
            yield unit
    if waiting:
        yield waiting


def _table(text: str, block: Block) -> Unit:
    head, _, *rows = lines_of(text, block.start, block.end)
    return Unit(
        UnitKind.TABLE, block.start, block.end, tuple(cells_of(text[head.start : head.end])), tuple(rows)
    )


_PIPE = re.compile(r"(?<!\\)\|")


def cells_of(row: str) -> list[str]:
    """Of a Markdown table's row."""
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(row.strip().strip("|"))]


# Which units say most of what was asked.

ASKED_FOR = 0.35  # a number where one is asked for, or a time
COST_OF_LENGTH = 0.1  # for a unit of LONGEST_UNIT characters
COST_OF_RANK = 0.15  # of the passage that a unit is in, for each place it is down the list
WORTH_QUOTING = 0.7  # of the best unit's share of the question
LITTLE = 0.15  # a share of the question's words below which words say nothing: in another language, say
MOST_QUOTES = 3


@dataclass(frozen=True, slots=True)
class Quote:
    """`passage` counts from 0; `text` is Markdown; `covers` is how much it has of the question's words."""

    passage: int
    text: str
    covers: float


@dataclass(frozen=True, slots=True)
class _Placed:
    passage: int
    unit: Unit
    held: list[bool]


def quotes(query: Query, asked: str, passages: Sequence[tuple[str, str]]) -> list[Quote]:
    """The best of the passages' units for `asked`, best first; `passages` are (heading, text), best first.

    Where none has words of the question, as in another language, the first passage as far as it is short.
    """
    terms = question_terms(asked)
    placed = list(_placed(terms, passages))
    shares = _shares(terms, placed)
    wanted = AskedFor.of(asked)
    values = [
        share + ASKED_FOR * wanted.is_in(_text(passages, one)) - _cost(one)
        for one, share in zip(placed, shares, strict=True)
    ]
    order = sorted(range(len(placed)), key=lambda at: -values[at])
    if passages and max(shares, default=0.0) < LITTLE:
        return [Quote(0, _beginning(passages[0][1], LONGEST_BEGINNING), 0.0)]
    chosen: list[Quote] = []
    for at in order:
        worth = not chosen or (shares[at] >= WORTH_QUOTING * shares[order[0]] and values[at] > 0)
        if len(chosen) == MOST_QUOTES or not worth:
            break
        text = _written(query, terms, passages, placed[at])
        if text and all(text != each.text for each in chosen):
            chosen.append(Quote(placed[at].passage, text, _covers(terms, placed[at])))
    return chosen


def _shares(terms: Sequence[WeightedTerm], placed: Sequence[_Placed]) -> list[float]:
    """What each unit has of the question's words, the rarer ones counting more."""
    weights = _rarity(terms, placed)
    total = sum(weights) or 1.0
    return [sum(w for w, held in zip(weights, one.held, strict=True) if held) / total for one in placed]


def _cost(one: _Placed) -> float:
    length = min(1.0, (one.unit.end - one.unit.start) / LONGEST_UNIT)
    return COST_OF_LENGTH * length + COST_OF_RANK * one.passage


def _covers(terms: Sequence[WeightedTerm], one: _Placed) -> float:
    held = sum(term.weight for term, here in zip(terms, one.held, strict=True) if here)
    return held / (sum(term.weight for term in terms) or 1.0)


def _placed(terms: Sequence[WeightedTerm], passages: Sequence[tuple[str, str]]) -> Iterator[_Placed]:
    """The heading's words count for every unit below it."""
    for number, (heading, text) in enumerate(passages):
        above = presence(terms, heading)
        units = units_of(text)
        for unit in [each for each in units if not _says_nothing(text, each)] or units:
            here = presence(terms, text[unit.start : unit.end])
            yield _Placed(number, unit, [a or b for a, b in zip(above, here, strict=True)])


def _says_nothing(text: str, unit: Unit) -> bool:
    return unit.kind is UnitKind.TEXT and is_answerless(text, Span(unit.start, unit.end))


def _rarity(terms: Sequence[WeightedTerm], placed: Sequence[_Placed]) -> list[float]:
    """The weight of each term: the more, the fewer units have it; what none has counts little."""
    counts = [sum(one.held[at] for one in placed) for at in range(len(terms))]
    rare = [math.log1p((len(placed) + 1) / (count + 0.5)) if count else 0.5 for count in counts]
    return [term.weight * each for term, each in zip(terms, rare, strict=True)]


def _text(passages: Sequence[tuple[str, str]], one: _Placed) -> str:
    return passages[one.passage][1][one.unit.start : one.unit.end]


def _written(
    query: Query, terms: Sequence[WeightedTerm], passages: Sequence[tuple[str, str]], one: _Placed
) -> str:
    heading, text = passages[one.passage]
    unit = one.unit
    match unit.kind:
        case UnitKind.TABLE:
            return _rows(terms, heading, text, unit)
        case UnitKind.CODE:
            return _beginning(text[unit.start : unit.end], LONGEST_CODE)
        case _ if unit.end - unit.start <= LONGEST_UNIT:
            return text[unit.start : unit.end].strip()
        case _:
            whole = text[unit.start : unit.end]
            span = key_spans(query, [whole])[0]
            return whole[span.start : span.end] if span else ""


def _beginning(text: str, longest: int) -> str:
    """Whole lines, and no fence left open: a text may be cut inside a block of code, here or before."""
    text = text.strip()
    if len(text) > longest:
        end = text.rfind("\n", 0, longest)
        text = f"{text[: end if end > 0 else longest].rstrip()}\n…"
    return f"{text}\n{fence}" if (fence := open_fence(text)) else text


def _rows(terms: Sequence[WeightedTerm], heading: str, text: str, unit: Unit) -> str:
    """The rows that have most of what tells rows from each other, each cell with its column's name."""
    held = [presence(terms, text[row.start : row.end]) for row in unit.rows]
    telling = [
        term.weight if 0 < sum(row[at] for row in held) < len(held) else 0.0 for at, term in enumerate(terms)
    ]
    shares = [sum(w for w, here in zip(telling, row, strict=True) if here) for row in held]
    best = max(shares, default=0.0)
    chosen = [row for row, share in zip(unit.rows, shares, strict=True) if share >= best - 1e-9]
    lines = [f"- {_row(unit.columns, cells_of(text[row.start : row.end]))}" for row in chosen[:MOST_ROWS]]
    if len(chosen) > MOST_ROWS:
        lines.append(f"- … +{len(chosen) - MOST_ROWS}")
    title = heading.rpartition(" > ")[2].strip() or heading
    return "\n".join([f"**{title}**", *lines] if title else lines)


def _row(columns: Sequence[str], cells: Sequence[str]) -> str:
    named = [(columns[at] if at < len(columns) else "", cell) for at, cell in enumerate(cells) if cell]
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in named)
