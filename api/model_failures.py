"""Why a model did not answer, in a sentence that names the settings to look at and holds no secret."""

from __future__ import annotations

from api.messages import say_failure
from config.prompt_library import Language
from config.secrets import Mask
from config.settings import ModelSettings
from core.errors import EmbeddingUnavailableError, LLMTruncatedError, LLMUnavailableError, UnavailableError

REASON_CHARS = 200  # of the provider's own words


class FailureTexts:
    def __init__(self, models: ModelSettings, mask: Mask) -> None:
        self._models = models
        self._mask = mask

    def __call__(self, error: Exception, language: Language, model_id: str = "default") -> str:
        """The error's own sentence where no model is to blame."""
        failure = error.failure if isinstance(error, UnavailableError) else None
        if failure is None:
            return self._mask(str(error))
        reason = " ".join(self._mask(failure.reason).split())
        reason = reason if len(reason) <= REASON_CHARS else f"{reason[:REASON_CHARS]}…"
        if isinstance(error, EmbeddingUnavailableError):
            return say_failure("embedding", failure, reason, language, **_endpoint("EMBEDDING"))
        if isinstance(error, LLMUnavailableError | LLMTruncatedError):
            return say_failure("model", failure, reason, language, **self._names(model_id))
        return say_failure("reranker", failure, reason, language, **_endpoint("RERANKER", "RERANKER_URL"))

    def _names(self, model_id: str) -> dict[str, str]:
        models = self._models
        from_environment = models.openai_base_url or models.openai_api_key
        table = model_id if model_id in models.llms or from_environment else next(iter(models.llms), "")
        entry = models.llms.get(table)
        names = {"timeout": "TOKEN_TIMEOUT_S"}
        if entry is None:
            return names | {"key": "OPENAI_API_KEY", "address": "OPENAI_BASE_URL", "model": "LLM_MODEL"}
        public = "ANTHROPIC_API_KEY" if entry.provider == "anthropic" else "OPENAI_API_KEY"
        key = entry.api_key_env or (public if not entry.api_key and not entry.base_url else "")
        fields = {"key": "api_key", "address": "base_url", "model": "model"}
        named = {name: f"{field} ([llms.{table}])" for name, field in fields.items()}
        return names | named | ({"key": key} if key else {})


def _endpoint(name: str, address: str = "") -> dict[str, str]:
    limit = "RERANK_TIMEOUT_S" if name == "RERANKER" else "timeout_s (EMBEDDING_OPTIONS)"
    return {
        "key": f"{name}_API_KEY",
        "address": address or f"{name}_BASE_URL",
        "model": name,
        "timeout": limit,
    }
