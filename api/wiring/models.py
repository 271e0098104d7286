"""Which models the configuration asks for, and with which key each is called."""

from __future__ import annotations

import os

from config.settings import LLMSettings, ModelSettings, Settings
from core.errors import StartRefusedError, UnknownModelError
from services.llm_service import DEFAULT_MODEL_ID, LLMService

DEFAULT_OPENAI_MODEL = "gpt-4o-mini"


def configured_llms(models: ModelSettings) -> dict[str, LLMSettings]:
    """The tables of the file; `default` is OPENAI_… of the environment, else the first, else extractive."""
    entries = dict(models.llms)
    if DEFAULT_MODEL_ID not in entries:
        if models.openai_base_url or models.openai_api_key:
            entries[DEFAULT_MODEL_ID] = LLMSettings(
                provider="openai",
                model=models.llm_model or DEFAULT_OPENAI_MODEL,
                base_url=models.openai_base_url,
                api_key=models.openai_api_key,
            )
        elif entries:
            entries[DEFAULT_MODEL_ID] = next(iter(entries.values()))
        else:
            entries[DEFAULT_MODEL_ID] = LLMSettings(provider="extractive")
    return {DEFAULT_MODEL_ID: entries.pop(DEFAULT_MODEL_ID), **entries}


def api_key_for(model_id: str, entry: LLMSettings, models: ModelSettings) -> str:
    """An own server often needs no key; the public API always does.

    A key that belongs to a provider goes to no host but the one it was set for.
    """
    secret, variable = entry.api_key, entry.api_key_env
    if entry.provider == "anthropic":
        variable = variable or (None if entry.base_url else "ANTHROPIC_API_KEY")
    elif secret is None and not variable and entry.base_url in (None, models.openai_base_url):
        secret = models.openai_api_key
    key = os.environ.get(variable, "") if variable else ""
    key = secret.get_secret_value() if secret else key
    if not key and (variable or not entry.base_url):
        needed = variable or "OPENAI_API_KEY"
        raise StartRefusedError(f"Model {model_id!r} has no API key: set {needed}.")
    if any(char.isspace() for char in key.strip()):
        raise StartRefusedError(f"Model {model_id!r}: its API key has a blank or a line break inside.")
    return key.strip() or "none"


def check_summary_model(settings: Settings, llms: LLMService) -> None:
    """Raises StartRefusedError."""
    try:
        llms.get(settings.conversation.summary_model_id)
    except UnknownModelError as error:
        raise StartRefusedError(f"SUMMARY_MODEL_ID names no model. {error}") from error
