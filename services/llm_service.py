"""The models a question may be sent to, by the configuration's own names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog

from core.errors import LLMRefusedError, UnknownModelError
from core.exchange import Exchange
from core.layouts import lay_out, next_after_refusal
from core.llm_wrapper import LLMDelta, LLMStreamWrapper
from core.messages import Layout, Message, PromptTexts
from core.tokens import estimate_prompt_tokens

log = structlog.get_logger()

DEFAULT_MODEL_ID = "default"
TEACHING = (400, 422)  # how servers refuse a form; any other status says nothing of it

NO_TEXTS = PromptTexts("", "", "")

Lay = Callable[[Layout], Sequence[Message]]


@dataclass(slots=True)
class LearnedLayout:
    """What a model's refusals taught in this process; None: nothing."""

    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One configured model. `generative` is False for the extractive answerer, which cannot judge.

    `max_tokens` is what is kept free for the answer; `count_tokens` counts as the model does, where known.
    """

    model_id: str
    provider: str
    label: str
    wrapper: LLMStreamWrapper
    layout: Layout
    context_window: int
    max_tokens: int
    generative: bool = True
    count_tokens: Callable[[str], int] = estimate_prompt_tokens
    learned: LearnedLayout = field(default_factory=LearnedLayout, compare=False)

    @property
    def layout_now(self) -> Layout:
        """The form that the next request begins with; never AUTO."""
        if self.layout is not Layout.AUTO:
            return self.layout
        return self.learned.layout or (
            Layout.SYSTEM_FIELD if self.provider == "anthropic" else Layout.ONE_SYSTEM
        )

    def stream(
        self, messages: Sequence[Message], exchange: Exchange | None = None
    ) -> AsyncGenerator[LLMDelta, None]:
        """Send messages that are already laid out; a flat layout goes to the completion side."""
        if self.layout is Layout.FLAT:
            return self.wrapper.stream(messages[0].content, exchange)
        return self.wrapper.stream_chat(messages, exchange)

    async def stream_laid(self, lay: Lay, exchange: Exchange | None = None) -> AsyncGenerator[LLMDelta, None]:
        """Send what `lay` makes for a layout; with AUTO, a refused form is followed by one other.

        `exchange` tells afterwards what was sent, in which layout. When both forms are refused, it is the
        first refusal's, which is raised (LLMRefusedError), and nothing is remembered.
        """
        exchange = exchange or Exchange()
        refusal: LLMRefusedError | None = None
        try:
            async with aclosing(self._attempt(lay, self.layout_now, exchange)) as deltas:
                async for delta in deltas:
                    yield delta
        except LLMRefusedError as error:
            refusal = error
        if refusal is not None:
            async with aclosing(self._another_form(lay, refusal, exchange)) as deltas:
                async for delta in deltas:
                    yield delta

    async def reply(self, messages: Sequence[Message]) -> str:
        """The whole answer to [system, question] at once, for judgements and summaries."""
        deltas = self.stream_laid(lambda layout: lay_out(messages, layout, NO_TEXTS))
        async with aclosing(deltas):
            return "".join([delta.text async for delta in deltas])

    async def _another_form(
        self, lay: Lay, refusal: LLMRefusedError, exchange: Exchange
    ) -> AsyncGenerator[LLMDelta, None]:
        layout, refused = self._other_layout(refusal, exchange.layout), exchange.kept()
        if layout is None:
            raise refusal
        try:
            async with aclosing(self._attempt(lay, layout, exchange)) as deltas:
                async for delta in deltas:
                    self._learn(layout)
                    yield delta
        except LLMRefusedError:
            exchange.take(refused)
            raise refusal from None

    def _attempt(self, lay: Lay, layout: Layout, exchange: Exchange) -> AsyncGenerator[LLMDelta, None]:
        exchange.begin(self.label, layout)
        return self.stream(lay(layout), exchange)

    def _other_layout(self, refusal: LLMRefusedError, refused: Layout) -> Layout | None:
        if self.layout is not Layout.AUTO or refusal.status not in TEACHING or not refusal.about_form:
            return None
        return next_after_refusal(refused)

    def _learn(self, layout: Layout) -> None:
        """Every delta says it again; what is news is logged."""
        if self.learned.layout is layout:
            return
        self.learned.layout = layout
        log.warning(
            "model_layout_learned",
            model_id=self.model_id,
            layout=layout.value,
            note="its server refused the form before; answers begin with this one until the next start",
        )


class LLMService:
    def __init__(self, entries: Mapping[str, ModelEntry]) -> None:
        self._entries = dict(entries)

    def get(self, model_id: str) -> ModelEntry:
        """Raises UnknownModelError: a model id is a key of the configuration, never a URL or a path."""
        entry = self._entries.get(model_id)
        if entry is None:
            known = ", ".join(sorted(self._entries))
            raise UnknownModelError(f"model_id: unknown model. Configured: {known}.")
        return entry

    def entries(self) -> list[ModelEntry]:
        return list(self._entries.values())
