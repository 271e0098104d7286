"""Any OpenAI-compatible endpoint, through LlamaIndex's OpenAILike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import httpx
import openai
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ChatResponseAsyncGen
from llama_index.llms.openai_like import OpenAILike

from config.settings import LLMSettings
from core.errors import LLMTruncatedError, LLMUnavailableError

CONNECT_TIMEOUT_S = 10
# the SDK reads chunks without checking them: what is no chunk fails as whatever Python makes of it
NOT_AN_ANSWER = (openai.OpenAIError, httpx.HTTPError, ValueError, TypeError, AttributeError, KeyError)
MAX_RETRIES = 2  # by the SDK, before the first token only, honouring Retry-After


class OpenAICompatibleLLM(OpenAILike):  # type: ignore[misc]  # the package has no type marker
    """Adds what OpenAILike leaves out: our errors, the finish reason, and a check that the answer ended."""

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        try:
            responses = await super().astream_chat(messages, **kwargs)
        except (openai.OpenAIError, httpx.HTTPError) as error:
            raise _ours(error) from error
        return _checked(cast(AsyncGenerator[ChatResponse, None], responses))


async def _checked(
    responses: AsyncGenerator[ChatResponse, None],
) -> AsyncGenerator[ChatResponse, None]:
    finish_reason: str | None = None
    try:
        async with aclosing(responses):
            async for response in responses:
                choices = getattr(response.raw, "choices", None) or []
                finish_reason = next((c.finish_reason for c in choices if c.finish_reason), finish_reason)
                response.additional_kwargs["finish_reason"] = finish_reason
                yield response
    except NOT_AN_ANSWER as error:
        raise _ours(error) from error
    if finish_reason is None:
        raise LLMTruncatedError("The model's answer broke off before its end.")


def _ours(error: Exception) -> LLMUnavailableError:
    """One plain sentence: neither the upstream's body nor its address reaches a client."""
    if isinstance(error, openai.APIStatusError):
        return LLMUnavailableError(f"The model's server refused the request (HTTP {error.status_code}).")
    if isinstance(error, openai.APITimeoutError):
        return LLMUnavailableError("The model's server did not answer in time.")
    if isinstance(error, openai.APIConnectionError):
        return LLMUnavailableError("The model's server could not be reached.")
    return LLMUnavailableError("The model's server sent something that is not an answer.")


def make_openai_llm(
    entry: LLMSettings, api_key: str, client: httpx.AsyncClient, timeout_s: float
) -> OpenAICompatibleLLM:
    return OpenAICompatibleLLM(
        model=entry.model,
        api_base=entry.base_url or "https://api.openai.com/v1",
        api_key=api_key,
        is_chat_model=entry.layout != "flat",
        context_window=entry.context_window or 32_768,
        max_tokens=entry.max_tokens,
        temperature=entry.temperature,
        max_retries=MAX_RETRIES,
        timeout=timeout_s,
        additional_kwargs=entry.options,
        async_http_client=client,
    )


def make_http_client(timeout_s: float) -> httpx.AsyncClient:
    """One pooled client per provider; it never follows a redirect, which could carry the key elsewhere."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=50),
        follow_redirects=False,
    )
