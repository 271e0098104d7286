"""The settings of conversations: history, budget, summaries, retention, filters."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from config.fields import FilterPath, Fraction, Section, Share, split_list

SHORTEST_COMPRESSED = 200  # tokens; a summary of less is hardly shorter


class ConversationSettings(Section):
    """What of a conversation is remembered, for how long, and how it goes into prompts."""

    max_recent_turns: int = Field(5, ge=0, le=100)
    max_relevant_turns: int = Field(2, ge=0, le=50)
    relevant_turn_threshold: Fraction | None = None
    conversation_expire_days: int = Field(30, ge=1, le=36_500)
    cleanup_cron: str = "0 3 * * *"
    timezone: str | None = None
    use_chat_mode: bool = True
    max_question_chars: int = Field(8_000, ge=1, le=100_000)
    max_persona_chars: int = Field(4_000, ge=1, le=100_000)
    answer_share: float = Field(0.25, ge=0.05, le=0.9, allow_inf_nan=False)
    memory_share: Share = 0.05
    knowledge_share: Share = 0.45
    compress_after_tokens: int = Field(3_000, ge=0, le=1_000_000)
    summary_model_id: str = "default"
    prompt_keep_days: int = Field(30, ge=0, le=36_500)
    qa_log: Path | None = None
    question_filters: tuple[FilterPath, ...] = ()
    answer_filters: tuple[FilterPath, ...] = ()

    @field_validator("question_filters", "answer_filters", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return split_list(value)

    @field_validator("compress_after_tokens")
    @classmethod
    def _worth_a_summary(cls, tokens: int) -> int:
        if 0 < tokens < SHORTEST_COMPRESSED:
            raise ValueError(f"must be 0 (no summaries) or at least {SHORTEST_COMPRESSED}")
        return tokens

    @field_validator("qa_log", mode="before")
    @classmethod
    def _blank_is_off(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.memory_share + self.knowledge_share > 1 + 1e-9:
            raise ValueError("memory_share and knowledge_share must not be more than 1 together")
        return self
