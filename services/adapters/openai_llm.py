"""Any OpenAI-compatible endpoint, through LlamaIndex's OpenAILike."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import httpx
import openai
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.llms.openai.utils import get_openai_reasoning_content, openai_modelname_to_contextsize
from llama_index.llms.openai.utils import to_openai_message_dicts as wire_form
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

from config.settings import LLMSettings
from core.errors import LLMRefusedError, LLMTruncatedError, LLMUnavailableError
from core.exchange import Exchange
from services.model_windows import UNKNOWN_WINDOW, answer_reserve

CONNECT_TIMEOUT_S = 10
# the SDK reads chunks without checking them: what is no chunk fails as whatever Python makes of it
NOT_AN_ANSWER = (openai.OpenAIError, httpx.HTTPError, ValueError, TypeError, AttributeError, KeyError)
MAX_RETRIES = 2  # by the SDK, before the first token only, honouring Retry-After
ANSWER_SHARE = 0.25  # of the window, at most, when the caller names no other

_NOTHING = ChatMessage(role=MessageRole.ASSISTANT, content="")
_DATED = re.compile(r"-\d{4}(-\d\d-\d\d)?$")
# How servers say that it is the length, or a filter, and not the form of the messages.
_OTHER_CAUSE = re.compile(
    r"context.?(length|window|size)|content.?(filter|policy|management)|too many (input |prompt )?tokens"
    r"|(prompt|input|message|request|text)s?( is| are)? too (long|large)|reduce (the length|your prompt)"
    r"|max_?(imum)?[ _](model[ _]len|input[ _]|prompt[ _])|tokens? limit|limit of \d+ tokens"
    r"|tokens?( count)?.{0,20}exceed|maximum number of tokens|input.{0,9}length|max_new_tokens"
    r"|上下文(长度|窗口)|(输入|长度|内容|[Tt]oken).{0,8}(过长|超长|超出|超过|过多)",
    re.I,
)
REASON_CHARS = 500  # of a refusal that are read: a server may repeat the whole request after its reason


class OpenAICompatibleLLM(OpenAILike):  # type: ignore[misc]  # the package has no type marker
    """Streams by itself what OpenAILike streams without our errors, the bytes sent, or the answer's end.

    Messages go as they are: the system role is not renamed for the models that know it as "developer" too.
    """

    records_exchange: ClassVar[bool] = True

    async def astream_chat(
        self, messages: Sequence[ChatMessage], exchange: Exchange | None = None, **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        create = partial(self._get_aclient().chat.completions.create, messages=wire_form(messages))
        return self._responses(create, exchange or Exchange(), kwargs)

    async def astream_complete(
        self, prompt: str, formatted: bool = False, exchange: Exchange | None = None, **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        """Through /completions; yields what `astream_chat` yields, of which only the delta matters."""
        create = partial(self._get_aclient().completions.create, prompt=prompt)
        return self._responses(create, exchange or Exchange(), kwargs)

    async def _responses(
        self, create: Callable[..., Awaitable[Any]], exchange: Exchange, options: dict[str, Any]
    ) -> AsyncGenerator[ChatResponse, None]:
        exchange.begin(exchange.model, exchange.layout)
        try:
            stream = await create(**self._get_model_kwargs(stream=True, **options))
            async with stream:
                exchange.sent(stream.response.request.content)
                async for chunk in stream:
                    yield _response(chunk, exchange)
        except NOT_AN_ANSWER as error:
            raise _ours(error, exchange) from error
        if exchange.finish_reason is None:
            raise LLMTruncatedError("The model's answer broke off before its end.")


def _response(chunk: Any, exchange: Exchange) -> ChatResponse:
    """What one chunk adds; its facts are noted in `exchange`."""
    extra: dict[str, Any] = {}
    if exchange.response_id is None:
        exchange.response_id, exchange.response_model = chunk.id or "", chunk.model
    if isinstance(chunk.usage, BaseModel):
        extra |= _usage(chunk.usage, exchange)
    if not chunk.choices:
        return ChatResponse(message=_NOTHING, delta="", additional_kwargs=extra)
    choice = chunk.choices[0]
    if choice.finish_reason:
        extra["finish_reason"] = exchange.finish_reason = choice.finish_reason
    delta = getattr(choice, "delta", None)
    if delta is None:  # of the completion side, whose choices are text
        return ChatResponse(
            message=_NOTHING, delta=getattr(choice, "text", None) or "", additional_kwargs=extra
        )
    if thinking := get_openai_reasoning_content(delta):
        extra["thinking_delta"] = thinking
    return ChatResponse(message=_NOTHING, delta=delta.content or "", additional_kwargs=extra)


def _usage(usage: BaseModel, exchange: Exchange) -> dict[str, Any]:
    exchange.usage = usage.model_dump(mode="json", exclude_unset=True, warnings=False)
    return {
        name: count
        for name in ("prompt_tokens", "completion_tokens")
        if isinstance(count := exchange.usage.get(name), int)
    }


def _ours(error: Exception, exchange: Exchange) -> LLMUnavailableError:
    """One plain sentence: neither the upstream's body nor its address reaches a client."""
    if isinstance(error, openai.APIError) and not exchange.body:
        exchange.sent(error.request.content)
    if isinstance(error, openai.APIStatusError):
        exchange.status = error.status_code
        return LLMRefusedError(
            f"The model's server refused the request (HTTP {error.status_code}).",
            error.status_code,
            about_form=not _OTHER_CAUSE.search(f"{error.code} {error.message}"[:REASON_CHARS]),
        )
    if isinstance(error, openai.APITimeoutError):
        return LLMUnavailableError("The model's server did not answer in time.")
    if isinstance(error, openai.APIConnectionError):
        return LLMUnavailableError("The model's server could not be reached.")
    return LLMUnavailableError("The model's server sent something that is not an answer.")


def make_openai_llm(
    entry: LLMSettings,
    api_key: str,
    client: httpx.AsyncClient,
    timeout_s: float,
    answer_share: float = ANSWER_SHARE,
) -> OpenAICompatibleLLM:
    """Its metadata's context window is 0 when neither the settings nor the model's name tell it."""
    window = entry.context_window or known_window(entry.model)
    return OpenAICompatibleLLM(
        model=entry.model,
        api_base=entry.base_url or "https://api.openai.com/v1",
        api_key=api_key,
        is_chat_model=True,
        context_window=window,
        max_tokens=answer_reserve(entry.max_tokens, window or UNKNOWN_WINDOW, answer_share),
        temperature=entry.temperature,
        max_retries=MAX_RETRIES,
        timeout=timeout_s,
        additional_kwargs=entry.options,
        async_http_client=client,
    )


def known_window(model: str) -> int:
    """Of OpenAI's own models, a vendor's prefix ("openai/…") and a date at the end left aside; else 0."""
    name = model.rpartition("/")[2]
    for candidate in (name, _DATED.sub("", name)):
        try:
            return int(openai_modelname_to_contextsize(candidate))
        except ValueError:
            continue
    return 0


def make_http_client(timeout_s: float) -> httpx.AsyncClient:
    """One pooled client per provider; it never follows a redirect, which could carry the key elsewhere."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=50),
        follow_redirects=False,
    )
