"""Splitting a text into atoms, which are never cut again: whole blocks where they fit, else their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise

from core.citing.passages import sentences
from core.text import ITEM, Block, BlockKind, Line, blocks_of, items_of, lines_of

CountTokens = Callable[[str], int]

_CLAUSE_END = re.compile(r"[，；、：]|[,;:](?=\s)")
_WORD_END = re.compile(r"\s++")
_MAX_TOKEN_CHARS = 16
_OVER_ANY_LIMIT = 1 << 40


class Ruler:
    """Measures texts against a limit in tokens.

    `count` may include tokens that the embedder adds to every text; they are subtracted. A text that is too
    long by its characters alone is not counted: counting is what takes the time.
    """

    def __init__(self, count: CountTokens, limit: int) -> None:
        self.limit = limit
        self.count = count
        self._added_tokens = count("a") - 1  # for "" a tokenizer may still count a leading space
        self._gaps = {"": 0}

    def tokens(self, text: str) -> int:
        if len(text) > self.limit * _MAX_TOKEN_CHARS:
            return _OVER_ANY_LIMIT
        return self.exact(text)

    def exact(self, text: str) -> int:
        return self.count(text) - self._added_tokens

    def gap(self, white: str) -> int:
        """Return the tokens of the white space between two spans; short ones recur, so they are cached."""
        if len(white) > 2:
            return self.exact(white)
        if white not in self._gaps:
            self._gaps[white] = self.exact(white)
        return self._gaps[white]


@dataclass(frozen=True, slots=True)
class Span:
    """The stretch `text[start:end]`, without white space at its ends, and its token count."""

    start: int
    end: int
    tokens: int


Cut = Callable[[str, int, int], Iterator[tuple[int, int]]]


def span_of(text: str, start: int, end: int, ruler: Ruler) -> Span | None:
    """Return the stretch with white space trimmed; None if nothing is left."""
    stretch = text[start:end]
    stripped = stretch.strip()
    if not stripped:
        return None
    start += len(stretch) - len(stretch.lstrip())
    return Span(start, start + len(stripped), ruler.tokens(stripped))


def cut_to_fit(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    """Yield the span in pieces within the ruler's limit (a single character is never cut). Linear time."""
    clauses, words = partial(_between, mark=_CLAUSE_END), partial(_between, mark=_WORD_END)
    return _cut(text, span, ruler, (_sentences, clauses, words))


def _cut(text: str, span: Span, ruler: Ruler, cuts: Sequence[Cut]) -> Iterator[Span]:
    if span.tokens <= ruler.limit:
        yield span
    elif not cuts:
        yield from _windows(text, span, ruler)
    else:
        for start, end in cuts[0](text, span.start, span.end):
            if piece := span_of(text, start, end, ruler):
                yield from _cut(text, piece, ruler, cuts[1:])


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for sentence in sentences(text[start:end]):
        yield start + sentence.start, start + sentence.end


def _between(text: str, start: int, end: int, mark: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for match in mark.finditer(text, start, end):
        yield start, match.end()
        start = match.end()
    yield start, end


def _windows(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    """Yield windows of as many characters as tokens are allowed; halved if characters take several tokens."""
    for start in range(span.start, span.end, ruler.limit):
        if piece := span_of(text, start, min(start + ruler.limit, span.end), ruler):
            yield from _halves(text, piece, ruler)


def _halves(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    if span.tokens <= ruler.limit or span.end - span.start == 1:
        yield span
        return
    middle = (span.start + span.end) // 2
    for start, end in ((span.start, middle), (middle, span.end)):
        if piece := span_of(text, start, end, ruler):
            yield from _halves(text, piece, ruler)


_MAX_LEAD_CHARS = 120
_LEAD_SHARE = 3  # at most a third of the limit for a lead-in directly above a list, a table or code
MAX_LED = 3  # headings, questions and the like that move along with what they introduce
MAX_LIST_DEPTH = 8  # deeper levels are cut as running text
_LEADS_IN = re.compile(r"[:：?？]\W{0,3}$")
_SENTENCE_END = re.compile(r"[。！!；;….][\"'”’」』）)\]*_]*$")
# A date or time, optionally in brackets; or a speaker or name followed by a colon; or a speaker and a time.
_ENTRY = re.compile(
    r"[ \t]*(?:[\[(（【]?(?:\d{4}[-/.年]\d{1,2}[-/.月]|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b|\d{1,2}[:：]\d{2}\b)"
    r"|[^\W\d_][^\n:：。，；！？,;!?|]{0,30}(?::(?=\s\S)|：(?=\S))"
    r"|[^\W\d_][^\n:：。，；！？,;!?|]{0,40}\d:\d{2}(?::\d{2})?[ \t]*$)"
)
_MIN_ENTRIES = 4
MAX_ENTRY_LINES = 3  # on average; with more it is prose that happens to contain dates or colons
_NUMBER = re.compile(r"\w+")
_OPENING, _CLOSING = "（(“「『【《", "）)”」』】》"


@dataclass(frozen=True, slots=True)
class Atom:
    """Characters `start` to `end`, and the token count, including the `header`.

    A `header` (a table's, repeated) is put before the text: such an atom begins a chunk. An atom that `leads`
    means little without what follows: a heading, a question, the line before a list.
    """

    start: int
    end: int
    tokens: int
    header: str = ""
    leads: bool = False


def atoms_of(text: str, ruler: Ruler) -> Iterator[Atom]:
    leading: list[Atom] = []
    blocks = [None, *blocks_of(text), None]
    for before, block, following in zip(blocks, blocks[1:], blocks[2:], strict=False):
        assert block is not None
        leads = following is not None and _leads(text, before, block, following, ruler)
        for atom in _block_atoms(text, block, ruler, leading, leads=leads):
            yield atom
            leading = [*leading, atom][-MAX_LED:] if atom.leads else []


def _block_atoms(
    text: str, block: Block, ruler: Ruler, leading: Sequence[Atom], *, leads: bool
) -> Iterator[Atom]:
    """`leading`: the preceding atoms that should stay with the first of these. To make room for them, a list
    or paragraph that would fit alone is cut; a table or code is not."""
    span = span_of(text, block.start, block.end, ruler)
    if span is None:
        return iter(())
    lead_tokens = leading[-1].tokens + ruler.gap(text[leading[-1].end : block.start]) if leading else 0
    whole_first = block.kind in (BlockKind.TABLE, BlockKind.CODE) or lead_tokens > ruler.limit // 2
    if span.tokens + (0 if whole_first else lead_tokens) <= ruler.limit:
        return iter((Atom(span.start, span.end, span.tokens, leads=leads),))
    match block.kind:
        case BlockKind.TABLE:
            return _table_atoms(text, block, ruler, leading)
        case BlockKind.CODE:
            return _line_atoms(text, block, ruler)
        case BlockKind.LIST:
            return _list_atoms(text, span, ruler, MAX_LIST_DEPTH)
        case BlockKind.PARAGRAPH if entries := _entries(text, span):
            return _entry_atoms(text, entries, ruler)
        case BlockKind.PARAGRAPH if len(lines := _whole_lines(text, span)) > 1:
            return _entry_atoms(text, lines, ruler)
        case BlockKind.PARAGRAPH:
            return _sentence_atoms(text, span, ruler)


def _leads(text: str, before: Block | None, block: Block, following: Block, ruler: Ruler) -> bool:
    """Whether the block introduces the next: a short line that ends in a colon or question mark or does not
    end a sentence; a few such lines above a table; or a short block with a list, table or code directly below
    it, without a blank line between."""
    if block.kind is BlockKind.LIST:
        return _is_heading(text, block, before, following)
    if block.kind is not BlockKind.PARAGRAPH:
        return False
    last = text[max(block.start, block.end - _MAX_LEAD_CHARS) : block.end].rstrip()
    is_line = "\n" not in last and len(last) == block.end - block.start
    last = last.rpartition("\n")[2]
    if _LEADS_IN.search(last):
        return True
    is_open = _SENTENCE_END.search(last) is None
    if is_line and is_open:
        return True
    is_above = following.kind is not BlockKind.PARAGRAPH and following.start == block.end + 1
    is_caption = following.kind is BlockKind.TABLE and is_open
    return (is_above or is_caption) and ruler.tokens(
        text[block.start : block.end]
    ) * _LEAD_SHARE <= ruler.limit


def _is_heading(text: str, line: Line | Block, *neighbours: Line | Block | None) -> bool:
    """Whether a numbered line is a heading: short, ending no sentence, and numbered unlike its neighbours.
    三、 above （一） is a heading, not another item."""
    numbering, words = _numbering(text, line), text[line.start : line.end].strip()
    if "0" not in numbering or len(words) > _MAX_LEAD_CHARS or "\n" in words:
        return False
    is_item = numbering in (_numbering(text, each) for each in neighbours if each)
    return not is_item and _SENTENCE_END.search(words) is None


def _numbering(text: str, line: Line | Block) -> str:
    """Return the numbering style it begins with: "0、" for 三、 and 四、, "（0）" for （二）; else ""."""
    item = ITEM.match(text, line.start, line.end)
    return "" if item is None else _NUMBER.sub("0", item.group().strip())


def _sentence_atoms(text: str, span: Span, ruler: Ruler) -> Iterator[Atom]:
    """Cut into sentences, even if it would fit. One that leaves a quote or bracket open leads to the next."""
    for piece in cut_to_fit(text, replace(span, tokens=ruler.limit + 1), ruler):
        words = text[piece.start : piece.end]
        opened = sum(map(words.count, _OPENING)) > sum(map(words.count, _CLOSING))
        leads = opened or _LEADS_IN.search(words, max(0, len(words) - 8)) is not None
        yield Atom(piece.start, piece.end, piece.tokens, leads=leads)


def _entries(text: str, span: Span) -> list[Line]:
    """Return chat messages, log lines or `name: value` lines, each with its continuation lines; [] for
    running text, where hardly a line begins like that. Text above the first entry counts as one."""
    lines = [*lines_of(text, span.start, span.end)]
    starts = [line.start for line in lines if _ENTRY.match(text, line.start, line.end)]
    if len(starts) < _MIN_ENTRIES or len(starts) * MAX_ENTRY_LINES < len(lines):
        return []
    return _cut_at([*dict.fromkeys((span.start, *starts))], span.end)


def _whole_lines(text: str, span: Span) -> list[Line]:
    """Return its lines; one that ends no sentence, with the next: its text is wrapped."""
    lines = [*lines_of(text, span.start, span.end)]
    starts = [
        line.start
        for before, line in pairwise(lines)
        if _SENTENCE_END.search(text, max(before.start, before.end - _MAX_LEAD_CHARS), before.end)
    ]
    return _cut_at((span.start, *starts), span.end)


def _cut_at(starts: Sequence[int], end: int) -> list[Line]:
    return [Line(start, stop) for start, stop in zip(starts, [*starts[1:], end], strict=True)]


def _entry_atoms(text: str, entries: Sequence[Line], ruler: Ruler) -> Iterator[Atom]:
    """Yield whole entries where they fit. A question leads to its answer."""
    for entry in entries:
        span = span_of(text, entry.start, entry.end, ruler)
        if span is None:
            continue
        if span.tokens > ruler.limit:
            yield from _sentence_atoms(text, span, ruler)
        else:
            leads = _LEADS_IN.search(text, max(span.start, span.end - 8), span.end) is not None
            yield replace(_atom(span), leads=leads)


def _list_atoms(text: str, span: Span, ruler: Ruler, levels: int) -> Iterator[Atom]:
    """Yield whole items where they fit; else an item's own line, which leads, and its sub-items. A heading of
    the next items, 三、 above （一）, leads as well."""
    items = list(items_of(text, span.start, span.end))
    for item, following in zip(items, [*items[1:], None], strict=True):
        piece = span_of(text, item.start, item.end, ruler)
        if piece is None:
            continue
        if piece.tokens <= ruler.limit:
            yield replace(_atom(piece), leads=following is not None and _is_heading(text, item, following))
        elif len(items) > 1 and levels:
            yield from _leading(_list_atoms(text, piece, ruler, levels - 1))
        else:
            yield from _sentence_atoms(text, piece, ruler)


def _leading(atoms: Iterator[Atom]) -> Iterator[Atom]:
    """Mark the first of several atoms as leading."""
    first = next(atoms, None)
    if first is not None:
        second = list(islice(atoms, 1))
        yield replace(first, leads=bool(second))
        yield from chain(second, atoms)


def _line_atoms(text: str, block: Block, ruler: Ruler) -> Iterator[Atom]:
    for line in lines_of(text, block.start, block.end):
        if span := span_of(text, line.start, line.end, ruler):
            yield from map(_atom, cut_to_fit(text, span, ruler))


def _table_atoms(text: str, block: Block, ruler: Ruler, leading: Sequence[Atom]) -> Iterator[Atom]:
    """Yield groups of rows under the table's header; plain rows if it leaves too little room. The atoms that
    lead to the table (its title, its unit) are repeated with the header as far as there is room."""
    rows = lines_of(text, block.start, block.end)
    header_end = [*islice(rows, 2)][-1].end
    starts = [atom.start for atom in leading] + [block.start]
    headers = [text[start:header_end] + "\n" for start in starts]
    header = next((each for each in headers if ruler.tokens(each) * 2 <= ruler.limit), "")
    if not header:
        yield from _line_atoms(text, block, ruler)
        return
    own, tokens = ruler.tokens(headers[-1]), ruler.tokens(header)
    room = ruler.limit - tokens
    first_room = room if tokens > own or not leading else room - leading[-1].tokens
    first = True
    for group in _row_groups(_row_spans(text, rows, Ruler(ruler.count, room)), room, first_room):
        if first:
            yield Atom(block.start, group.end, own + group.tokens)
        else:
            yield Atom(group.start, group.end, tokens + group.tokens, header)
        first = False


def _row_spans(text: str, rows: Iterator[Line], ruler: Ruler) -> Iterator[Span]:
    """A row longer than the room is cut, and each part gets the header."""
    for row in rows:
        if span := span_of(text, row.start, row.end, ruler):
            yield from cut_to_fit(text, span, ruler)


def _row_groups(rows: Iterator[Span], room: int, first_room: int) -> Iterator[Span]:
    """Group neighbouring rows while they fit; the first group leaves room for the line before it."""
    group: Span | None = None
    left = first_room if first_room > room // 2 else room
    for row in rows:
        if group is None:
            group = row
        elif group.tokens + row.tokens + 1 <= left:
            group = Span(group.start, row.end, group.tokens + row.tokens + 1)
        else:
            yield group
            group, left = row, room
    if group is not None:
        yield group


def _atom(span: Span) -> Atom:
    return Atom(span.start, span.end, span.tokens)
