"""The models a question may be sent to, by the configuration's own names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from core.errors import UnknownModelError
from core.llm_wrapper import LLMDelta, LLMStreamWrapper
from core.messages import Layout, Message

DEFAULT_MODEL_ID = "default"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One configured model. `generative` is False for the extractive answerer, which cannot judge."""

    model_id: str
    provider: str
    label: str
    wrapper: LLMStreamWrapper
    layout: Layout
    context_window: int
    max_tokens: int
    generative: bool = True

    def stream(self, messages: Sequence[Message]) -> AsyncGenerator[LLMDelta, None]:
        """Send messages that are already laid out; a flat layout goes to the completion side."""
        if self.layout is Layout.FLAT:
            return self.wrapper.stream(messages[0].content)
        return self.wrapper.stream_chat(messages)


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
