"""Explain in Chinese and English why a model did not answer, naming the settings to check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.messages import in_language, say
from config.secrets import Mask
from config.settings import ModelSettings
from config.tables import LLMSettings
from core.errors import (
    Cause,
    EmbeddingUnavailableError,
    LLMTruncatedError,
    LLMUnavailableError,
    ModelFailure,
    StoreReadOnlyError,
    StoreUnavailableError,
    UnavailableError,
    WenmaiError,
)
from core.text import Language, is_mostly_chinese

_STORE_CODES = (StoreUnavailableError.code, StoreReadOnlyError.code)  # their own messages are for the log
REASON_CHARS = 200  # of the provider's own message

# Why a model gave no answer, by cause; and what to do, by cause or HTTP status. `{part}` is one of _PARTS,
# the other fields are names of settings.
_PARTS = {
    "model": ("模型服务", "The model's server"),
    "embedding": ("嵌入模型", "The embedding model"),
    "reranker": ("重排模型", "The reranker"),
}
_FAILURES: dict[Cause, tuple[str, str]] = {
    Cause.REFUSED: ("{part}拒绝了请求{status}", "{part} refused the request{status}"),
    Cause.UNREACHABLE: ("连不上{part}{place}", "{part}{place} cannot be reached"),
    Cause.UNKNOWN_HOST: (
        "无法解析{part}的主机名{place}",
        "{part}{place} has a host name that cannot be resolved",
    ),
    Cause.TLS: ("与{part}{place}的 TLS 连接失败", "{part}{place}: the TLS connection failed"),
    Cause.TIMEOUT: ("{part}没有及时应答", "{part} did not answer in time"),
    Cause.BROKE_OFF: (
        "与{part}的连接中途断开",
        "{part} closed the connection before its answer was complete",
    ),
    Cause.NOT_AN_ANSWER: ("{part}返回的不是可用的应答", "{part} sent something that is not an answer"),
    Cause.GARBLED: (
        "{part}的应答中途出现了无法读懂的内容",
        "{part} sent something unreadable in the middle of its answer",
    ),
    Cause.EMPTY: ("{part}没有给出任何内容", "{part} returned no text"),
    Cause.CLASS_FAILED: (
        "{part}的类抛出了异常，详情见服务器日志",
        "{part}: its class raised an error; the server's log has the details",
    ),
    Cause.SPARED: (
        "{part}连续出错，几秒后再试",
        "{part} failed several times in a row and will be tried again in a few seconds",
    ),
    Cause.BUSY: ("模型正忙或还在载入，稍后再试", "The model was busy or loading for too long"),
}
_HINTS: dict[Cause | int, tuple[str, str]] = {
    401: ("请检查 {key} 里的密钥。", "Check the key in {key}."),
    403: (
        "请检查 {key} 里的密钥，以及它能否使用这个模型。",
        "Check the key in {key}, and whether it may use this model.",
    ),
    404: (
        "请检查 {model} 里的模型名，以及 {address} 里的地址是否少了 /v1。",
        "Check the model's name in {model}, and whether the address in {address} lacks /v1.",
    ),
    429: (
        "请求太频繁或额度已用完：稍后再试，或查看账户的额度。",
        "Too many requests, or the quota is used up: try again later, or check the account.",
    ),
    500: ("请稍后再试，或查看它的日志。", "Try again later, or check its log."),
    Cause.GARBLED: ("请稍后再试，或查看它的日志。", "Try again later, or check its log."),
    Cause.UNREACHABLE: ("它在运行吗？地址由 {address} 设定。", "Is it running? {address} sets its address."),
    Cause.UNKNOWN_HOST: ("请检查 {address} 和本机的 DNS。", "Check {address}, and the DNS of this machine."),
    Cause.TLS: (
        "请检查 {address} 该用 https 还是 http，以及它的证书。",
        "Check whether {address} should begin with https or http, and its certificate.",
    ),
    Cause.TIMEOUT: ("{timeout} 设定等多久。", "{timeout} sets how long Wenmai waits."),
    Cause.EMPTY: (
        "若 max_tokens 被思考用完，请调大它或关闭思考。",
        "If its thinking used up max_tokens, raise that, or switch thinking off.",
    ),
    Cause.NOT_AN_ANSWER: (
        "请检查 {address}，它多半以 /v1 结尾。",
        "Check {address}: it usually ends in /v1.",
    ),
}


def say_failure(part: str, failure: ModelFailure, reason: str, language: Language, **names: str) -> str:
    """Say what `part` (model, embedding, reranker) did, its own `reason` if any, and what to do. `names` are
    the names of its settings."""
    chinese = language == "zh"
    place = f" {failure.place} " if chinese else f" at {failure.place}"
    status = (
        (f"（HTTP {failure.status}）" if chinese else f" (HTTP {failure.status})") if failure.status else ""
    )
    names |= {
        "part": in_language(language, _PARTS[part]),
        "status": status,
        "place": place if failure.place else "",
    }
    lead = in_language(language, _FAILURES[failure.cause]).format(**names)
    key = failure.cause if failure.cause is not Cause.REFUSED else min(failure.status, 500)
    hint = in_language(language, _HINTS.get(key, ("", ""))).format(**names)
    if chinese:
        return f"{lead}：“{reason}”{hint}" if reason else f"{lead}。{hint}"
    return f"{lead}: “{reason}” {hint}".rstrip() if reason else f"{lead}. {hint}".rstrip()


@dataclass(frozen=True, slots=True)
class FailureTexts:
    """Explains why a model did not answer, naming the settings to check and leaking no secret.

    `stored` are the tables of models added while the server runs.
    """

    models: ModelSettings
    mask: Mask
    stored: Mapping[str, LLMSettings] = field(default_factory=dict)

    def __call__(self, error: Exception, language: Language, model_id: str = "default") -> str:
        """Return the error's own message where no model is to blame."""
        failure = error.failure if isinstance(error, UnavailableError) else None
        if failure is None:
            return self._own_sentence(error, language)
        reason = " ".join(self.mask(failure.reason).split())
        reason = reason if len(reason) <= REASON_CHARS else f"{reason[:REASON_CHARS]}…"
        if isinstance(error, EmbeddingUnavailableError):
            return say_failure("embedding", failure, reason, language, **_endpoint("EMBEDDING"))
        if isinstance(error, LLMUnavailableError | LLMTruncatedError):
            return say_failure("model", failure, reason, language, **self._names(model_id))
        return say_failure("reranker", failure, reason, language, **_endpoint("RERANKER", "RERANKER_URL"))

    def _own_sentence(self, error: Exception, language: Language) -> str:
        code = error.code if isinstance(error, WenmaiError) else WenmaiError.code
        if code in _STORE_CODES:
            return say(code, language)
        sentence = self.mask(str(error))
        is_english_only = language == "zh" and code == WenmaiError.code and not is_mostly_chinese(sentence)
        return say(code, language) if is_english_only else sentence

    def _names(self, model_id: str) -> dict[str, str]:
        models = self.models
        from_environment = models.openai_base_url or models.openai_api_key
        table = model_id if model_id in models.llms or from_environment else next(iter(models.llms), "")
        entry, place = models.llms.get(table), f"[llms.{table}]"
        if model_id in self.stored:
            entry, place = self.stored[model_id], model_id
        names = {"timeout": "TOKEN_TIMEOUT_S"}
        if entry is None:
            return names | {"key": "OPENAI_API_KEY", "address": "OPENAI_BASE_URL", "model": "LLM_MODEL"}
        public = "ANTHROPIC_API_KEY" if entry.provider == "anthropic" else "OPENAI_API_KEY"
        key = entry.api_key_env or (public if not entry.api_key and not entry.base_url else "")
        fields = {"key": "api_key", "address": "base_url", "model": "model"}
        named = {name: f"{field} ({place})" for name, field in fields.items()}
        return names | named | ({"key": key} if key else {})


def _endpoint(name: str, address: str = "") -> dict[str, str]:
    limit = "RERANK_TIMEOUT_S" if name == "RERANKER" else "timeout_s (EMBEDDING_OPTIONS)"
    return {
        "key": f"{name}_API_KEY",
        "address": address or f"{name}_BASE_URL",
        "model": name,
        "timeout": limit,
    }
