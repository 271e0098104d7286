"""The settings of conversations: history, budget, summaries, retention, filters."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from config.fields import FilterPath, Fraction, Section, Share, split_list


class ConversationSettings(Section):
    """What of a conversation is remembered, for how long, and how the model is told."""

    max_recent_turns: int = Field(5, ge=0, le=100)
    max_relevant_turns: int = Field(2, ge=0, le=50)
    relevant_turn_threshold: Fraction | None = None
    conversation_expire_days: int = Field(30, ge=1, le=36_500)
    cleanup_cron: str = "0 3 * * *"
    timezone: str | None = None
    use_chat_mode: bool = True
    message_layout: Literal["auto", "one_system", "many_system", "system_field", "flat"] = "auto"
    max_question_chars: int = Field(8_000, ge=1, le=100_000)
    max_persona_chars: int = Field(4_000, ge=1, le=100_000)
    history_cache_s: float = Field(300, ge=0, le=86_400, allow_inf_nan=False)
    answer_share: float = Field(0.25, ge=0.05, le=0.9, allow_inf_nan=False)
    persona_share: float = Field(0.15, ge=0.01, le=0.9, allow_inf_nan=False)
    memory_share: Share = 0.05
    summary_share: Share = 0.1
    relevant_share: Share = 0.15
    recent_share: Share = 0.25
    knowledge_share: Share = 0.45
    compress_history: bool = True
    compress_after_tokens: int = Field(3_000, ge=200, le=1_000_000)
    summary_tokens: int = Field(400, ge=50, le=10_000)
    summary_model_id: str = "default"
    prompt_keep_days: int = Field(30, ge=0, le=36_500)
    qa_log: Path | None = None
    question_filters: tuple[FilterPath, ...] = ()
    answer_filters: tuple[FilterPath, ...] = ()

    @field_validator("question_filters", "answer_filters", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return split_list(value)

    @field_validator("qa_log", mode="before")
    @classmethod
    def _blank_is_off(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        parts = (self.memory_share, self.summary_share, self.relevant_share, self.recent_share)
        if sum(parts) + self.knowledge_share > 1 + 1e-9:
            raise ValueError(
                "memory_share, summary_share, relevant_share, recent_share and knowledge_share "
                "must not be more than 1 together"
            )
        return self
