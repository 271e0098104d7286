"""A hit told with what stands around it: sentences of its section, before and after, up to a few tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.knowledge import Candidate, Chunk
from core.passages import Span, sentences
from core.tokens import estimate_tokens
from services.knowledge.neighbours import Around, Neighbours, same_section, version_of

LEAST_CHUNK_TOKENS = 64  # neighbours are looked for as far as the tokens reach with chunks of this size
MAX_REACH = 16
_TABLE_HEAD = re.compile(r"\|.*\n\|[\s:|-]+\n")


@dataclass(frozen=True, slots=True)
class _Sentence:
    chunk: Chunk
    text: str
    span: Span


class Widener:
    """`tokens` (estimated) are added to each hit at most."""

    def __init__(self, neighbours: Neighbours, tokens: int) -> None:
        self._neighbours = neighbours
        self._tokens = tokens
        self._reach = min(MAX_REACH, 1 + tokens // LEAST_CHUNK_TOKENS)

    async def widen(self, candidates: Sequence[Candidate], owners: Sequence[str]) -> tuple[Candidate, ...]:
        """The candidates in their order, each with the text that it is told with.

        Nothing is told twice: what is a hit itself, or stands with a better one, is left out. Raises
        StoreUnavailableError.
        """
        hits = [candidate.chunk for candidate in candidates]
        if not hits:
            return ()
        around = await self._neighbours.around(hits, owners, self._reach)
        told = {_place(hit) for hit in hits}
        return tuple(
            replace(one, chunk=replace(one.chunk, text=self._widened(one.chunk, around, told)))
            for one in candidates
        )

    def _widened(self, hit: Chunk, around: Around, told: set[tuple[str, str, int]]) -> str:
        sides = {step: _sentences(hit, around, step, told) for step in (1, -1)}
        taken: dict[int, list[_Sentence]] = {1: [], -1: []}
        room = self._tokens
        while sides:
            for step, side in list(sides.items()):  # by turns: nobody knows on which side the answer is
                sentence = next(side, None)
                room -= estimate_tokens(sentence.text) if sentence else 0
                if sentence is None or room < 0:
                    room = max(room, 0)
                    del sides[step]
                    continue
                taken[step].append(sentence)
        told |= {_place(sentence.chunk) for side in taken.values() for sentence in side}
        return "\n".join([*_runs(taken[-1][::-1]), hit.text, *_runs(taken[1])])


def _place(chunk: Chunk) -> tuple[str, str, int]:
    return (*version_of(chunk), chunk.position)


def _sentences(hit: Chunk, around: Around, step: int, told: set[tuple[str, str, int]]) -> Iterator[_Sentence]:
    """Of the section, from the hit outwards, as far as nothing of it is told elsewhere."""
    beside = hit
    for neighbour in around.towards(hit, step):
        if not same_section(hit, neighbour) or _place(neighbour) in told:
            return
        start, end = _new(neighbour, beside, step)
        spans = [span for span in sentences(neighbour.text) if span.start >= start and span.end <= end]
        for span in spans[::step]:
            yield _Sentence(neighbour, neighbour.text[span.start : span.end], span)
        beside = neighbour


def _new(neighbour: Chunk, beside: Chunk, step: int) -> tuple[int, int]:
    """What of its text is not in the chunk beside it: neither an overlap nor the head of the same table."""
    text, start, end = neighbour.text, 0, len(neighbour.text)
    head = _TABLE_HEAD.match(text)
    if head and _TABLE_HEAD.match(beside.text) and beside.text.startswith(head.group()):
        start = head.end()
    if step > 0 and neighbour.char_start < beside.char_end:
        start = max(start, _shared(beside.text, text, beside.char_end - neighbour.char_start))
    if step < 0 and beside.char_start < neighbour.char_end:
        end -= _shared(text, beside.text, neighbour.char_end - beside.char_start)
    return start, end


def _shared(first: str, second: str, most: int) -> int:
    """How many characters end the one text and begin the other."""
    lengths = range(min(most, len(first), len(second)), 0, -1)
    return next((length for length in lengths if first.endswith(second[:length])), 0)


def _runs(taken: Sequence[_Sentence]) -> Iterator[str]:
    """Sentences of one chunk as they stand there, with what is between them; in document order."""
    for chunk in dict.fromkeys(sentence.chunk for sentence in taken):
        spans = [sentence.span for sentence in taken if sentence.chunk is chunk]
        yield chunk.text[spans[0].start : spans[-1].end]
