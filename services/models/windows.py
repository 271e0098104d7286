"""How many tokens a model accepts and may answer with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import structlog
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms.llm import LLM

import config
from config.settings import LLMSettings

log = structlog.get_logger()

UNKNOWN_WINDOW = 8_192  # what nearly every model in use has at least

_BESIDE = re.compile(r":(free|thinking|nitro|floor|online|extended|exacto)$")  # OpenRouter's, behind a name
_ENDS_A_NAME = ("", "-", "@", "_")


def known_window(model: str) -> int:
    """The longest name of config/model_windows.toml that `model` begins with, part by part; else 0.

    A vendor's prefix ("openai/…") and "ft:" are left aside. A name with another tag behind a colon is
    Ollama's, which cuts what exceeds its own setting whatever the model could read: it is not known.
    """
    name = _BESIDE.sub("", model.lower().rpartition("/")[2])
    name = name.split(":")[1] if name.startswith("ft:") else name
    windows = _windows()
    ends = (end for end in range(len(name), 0, -1) if name[end : end + 1] in _ENDS_A_NAME)
    return next((windows[name[:end]] for end in ends if name[:end] in windows), 0)


def window_of(entry: LLMSettings, llm: LLM | None, model_id: str = "default") -> int:
    """The configured window, else what the model's class says, else 8,192 with a line in the log.

    A class that leaves LlamaIndex's own default may mean it or not: it is kept, being small, and logged.
    """
    if entry.context_window:
        return entry.context_window
    reported = _reported_by(llm)
    if reported <= 0 or reported == DEFAULT_CONTEXT_WINDOW:
        log.warning(
            "model_window_unknown",
            model=entry.model or entry.provider,
            assumed_tokens=reported if reported > 0 else UNKNOWN_WINDOW,
            set=f"context_window in [llms.{model_id}]",
        )
    return reported if reported > 0 else UNKNOWN_WINDOW


def answer_reserve(max_tokens: int, window: int, answer_share: float) -> int:
    """Tokens kept free for the answer; also the most that may be asked for, so that both fit."""
    return max(1, min(max_tokens, int(window * answer_share)))


def _reported_by(llm: LLM | None) -> int:
    """0 when the class does not know; LlamaIndex's OpenAI raises for a model that it does not know."""
    try:
        return llm.metadata.context_window if llm is not None else 0
    except ValueError:
        return 0


@lru_cache(maxsize=1)
def _windows() -> Mapping[str, int]:
    families = tomllib.loads((Path(config.__file__).parent / "model_windows.toml").read_text("utf-8"))
    return {name: tokens for family in families.values() for name, tokens in family.items()}
