"""What the model has said so far: scrubbed, split into thinking and content, trimmed, with its counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from core.llm_wrapper import LLMDelta
from core.text import TextScrubber
from core.think import Piece, ThinkSplitter
from core.tokens import estimate_tokens
from services.text_filters import AnswerFilters


class TrimmedText:
    """Text in pieces, without white space at its beginning and end: what follows a word waits for more."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._waiting: list[str] = []

    def __str__(self) -> str:
        return "".join(self._parts)

    def add(self, piece: str) -> str:
        """What may be sent of the text so far, beyond what was."""
        if not self._parts:
            piece = piece.lstrip()
        words = piece.rstrip()
        said = "".join([*self._waiting, words]) if words else ""
        if words:
            self._waiting.clear()
            self._parts.append(said)
        if len(words) < len(piece):
            self._waiting.append(piece[len(words) :])
        return said


class Answer:
    """`filters` makes the filter that the content goes through, and only it, before it is kept or sent."""

    def __init__(self, filters: AnswerFilters | None = None) -> None:
        self._kept = {True: TrimmedText(), False: TrimmedText()}
        self._splitter = ThinkSplitter()
        self._scrubber = TextScrubber()
        self._filter = filters() if filters else None
        self._told_completion: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None

    @property
    def content(self) -> str:
        return str(self._kept[False])

    @property
    def thinking(self) -> str:
        return str(self._kept[True])

    @property
    def completion_tokens(self) -> int:
        """As told by the provider, else estimated."""
        if self._told_completion is not None:
            return self._told_completion
        return estimate_tokens(self.content) + estimate_tokens(self.thinking)

    async def pieces(self, deltas: AsyncGenerator[LLMDelta, None]) -> AsyncGenerator[Piece, None]:
        """The pieces to send on; the model's connection is closed when this generator is."""
        async with aclosing(deltas):
            async for delta in deltas:
                self._count(delta)
                if delta.thinking:
                    for piece in self._keep([Piece(delta.thinking, thinking=True)]):
                        yield piece
                for piece in self._keep(self._splitter.feed(self._scrubber.feed(delta.text))):
                    yield piece
        for piece in self._rest():
            yield piece

    def whole(self, text: str) -> list[Piece]:
        """The pieces of a text of our own: all of it is content, and no filter is asked."""
        text = self._kept[False].add(text)
        return [Piece(text, thinking=False)] if text else []

    def _keep(self, pieces: Iterable[Piece]) -> list[Piece]:
        """What is to be sent of the pieces; white space at the end of what was said waits for more."""
        kept = []
        for piece in pieces:
            text = piece.text
            if self._filter is not None and not piece.thinking:
                text = self._filter.feed(text)
            text = self._kept[piece.thinking].add(text)
            if text:
                kept.append(Piece(text, piece.thinking))
        return kept

    def _rest(self) -> list[Piece]:
        """What the splitter and the filters held back, at the end of the stream."""
        kept = self._keep([*self._splitter.feed(self._scrubber.flush()), *self._splitter.flush()])
        if self._filter is not None:
            text = self._kept[False].add(self._filter.flush())
            kept += [Piece(text, thinking=False)] if text else []
        return kept

    def _count(self, delta: LLMDelta) -> None:
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.prompt_tokens is not None:
            self.prompt_tokens = delta.prompt_tokens
        if delta.completion_tokens is not None:
            self._told_completion = delta.completion_tokens
