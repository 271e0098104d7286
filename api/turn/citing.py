"""The citations of one turn: their key passages are chosen while the model writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from core.citing.citations import KnownDocuments, Mark, cite, claims, find_marks, mark_cited
from core.citing.passages import KeyPassages, Span
from core.conversation.turns import Turn
from core.knowledge import Candidate, Citation
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms

log = structlog.get_logger()
T = TypeVar("T")

LARGE_CHARS = 8_000  # a text that takes more than about a millisecond goes to a thread
FindDocuments = Callable[[Sequence[str], Sequence[str]], Awaitable[KnownDocuments]]
"""Document ids and owners to those that are there."""


class Citing:
    """`expect` what will be cited, `begin` when the first token has been sent, `finish` with the answer."""

    def __init__(self) -> None:
        self._query: Query | None = None
        self._candidates: tuple[Candidate, ...] = ()
        self._passages: KeyPassages | None = None
        self._spans: list[Span | None] = []
        self._reading: asyncio.Task[None] | None = None

    def expect(self, query: Query | None, candidates: tuple[Candidate, ...], rewritten: str = "") -> None:
        """`rewritten` is the question as a model put it, "" when none did."""
        if query is not None and rewritten:
            form = QueryForm(rewritten, [], SparseTerms([], []))
            query = replace(query, forms=(*query.forms, form))
        self._query = query
        self._candidates = candidates

    def begin(self) -> None:
        """Costs nothing to be called again."""
        if self._reading is None and self._candidates:
            self._reading = asyncio.create_task(self._read(), name="key passages")

    async def finish(self, answer: str) -> tuple[Citation, ...]:
        """Numbered as in the prompt, those marked that the answer used.

        Whatever goes wrong with a key passage, there is a citation for each candidate.
        """
        if not self._candidates:
            return ()
        self.begin()
        marks = await _step(len(answer), self._marks, answer)
        refining = asyncio.create_task(self._refine(claims(answer, marks)))
        await asyncio.wait([refining])
        if refining.exception() is not None:
            log.error("key_passages_failed", exc_info=refining.exception())
        return mark_cited(cite(self._candidates, self._spans), marks)

    def _marks(self, answer: str) -> list[Mark]:
        return list(find_marks(answer, len(self._candidates)))

    async def _read(self) -> None:
        """By the question's words alone; between two steps whoever waits for the loop gets it."""
        if self._query is None:
            return
        passages = KeyPassages(self._query)
        texts = [candidate.chunk.text for candidate in self._candidates]
        for text in texts:
            await _step(len(text), passages.read, text)
        for number, text in enumerate(texts):
            self._spans.append(await _step(len(text), passages.span, number))
        self._passages = passages

    async def _refine(self, claimed: dict[int, str]) -> None:
        """By what the answer says, too, for the sources that it names."""
        if self._reading is not None:
            await self._reading
        if self._passages is None:
            return
        for index, claim in claimed.items():
            number = index - 1
            size = len(self._candidates[number].chunk.text)
            self._spans[number] = await _step(size, self._passages.span, number, claim)


async def known_documents(
    find: FindDocuments, turns: Sequence[Turn], owners: Sequence[str]
) -> KnownDocuments:
    """Which documents of these turns' sources are there: one look, none when there are no sources."""
    ids = {citation.document_id for turn in turns for citation in turn.sources}
    return await find(sorted(ids), owners) if ids else KnownDocuments()


async def _step(size: int, work: Callable[..., T], *arguments: object) -> T:
    """One step of the work, then the others' turn; in a thread when `size` characters take long."""
    if size > LARGE_CHARS:
        return await asyncio.to_thread(work, *arguments)
    done = work(*arguments)
    await asyncio.sleep(0)
    return done
