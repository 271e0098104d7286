"""How many tokens a model can be told and may answer with."""

from __future__ import annotations

import structlog
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms.llm import LLM

from config.settings import LLMSettings

log = structlog.get_logger()

UNKNOWN_WINDOW = 8_192  # what nearly every model in use has at least


def window_of(entry: LLMSettings, llm: LLM | None, model_id: str = "default") -> int:
    """The configured window, else what the model's class says, else 8,192 with a line in the log.

    A class that leaves LlamaIndex's own default may mean it or not: it is kept, being small, and logged.
    """
    if entry.context_window:
        return entry.context_window
    told = _told_by(llm)
    if told <= 0 or told == DEFAULT_CONTEXT_WINDOW:
        log.warning(
            "model_window_unknown",
            model=entry.model or entry.provider,
            assumed_tokens=told if told > 0 else UNKNOWN_WINDOW,
            set=f"context_window in [llms.{model_id}]",
        )
    return told if told > 0 else UNKNOWN_WINDOW


def answer_reserve(max_tokens: int, window: int, answer_share: float) -> int:
    """Tokens kept free for the answer; also the most that may be asked for, so that both fit."""
    return max(1, min(max_tokens, int(window * answer_share)))


def _told_by(llm: LLM | None) -> int:
    """0 when the class does not know; LlamaIndex's OpenAI raises for a model that it has not heard of."""
    try:
        return llm.metadata.context_window if llm is not None else 0
    except ValueError:
        return 0
