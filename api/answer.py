"""What the model has said so far: scrubbed, split into thinking and content, with its counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from core.llm_wrapper import LLMDelta
from core.text import TextScrubber
from core.think import Piece, ThinkSplitter
from core.tokens import estimate_tokens


class Answer:
    def __init__(self) -> None:
        self._parts: dict[bool, list[str]] = {True: [], False: []}
        self._splitter = ThinkSplitter()
        self._scrubber = TextScrubber()
        self._told_completion: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None

    @property
    def content(self) -> str:
        return "".join(self._parts[False])

    @property
    def thinking(self) -> str:
        return "".join(self._parts[True])

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
        rest = [*self._splitter.feed(self._scrubber.flush()), *self._splitter.flush()]
        for piece in self._keep(rest):
            yield piece

    def _keep(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Blank text before the first word of thinking or answer is dropped."""
        kept = []
        for piece in pieces:
            parts = self._parts[piece.thinking]
            text = piece.text if parts else piece.text.lstrip()
            if text:
                parts.append(text)
                kept.append(Piece(text, piece.thinking))
        return kept

    def _count(self, delta: LLMDelta) -> None:
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.prompt_tokens is not None:
            self.prompt_tokens = delta.prompt_tokens
        if delta.completion_tokens is not None:
            self._told_completion = delta.completion_tokens
