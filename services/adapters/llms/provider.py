"""What our HTTP providers have in common: one POST, its answer as deltas, and how its parameters are made."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import aiohttp
from llama_index.core.base.llms.types import LLMMetadata
from pydantic import Field, PrivateAttr

from config.settings import LLMSettings
from core.errors import LLMRefusedError, StartRefusedError
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import Exchange, canonical_json
from core.prompt.messages import Message
from services.adapters.http.endpoint import Endpoint
from services.adapters.http.transport import post_stream
from services.adapters.llms.answer_reader import AnswerReader
from services.models.lean import LeanLLM
from services.models.windows import UNKNOWN_WINDOW, answer_reserve, known_window

ANSWER_SHARE = 0.25  # of the window, at most, when the caller names no other
END_PATIENCE_S = 2.0  # for token counts and the rest, once the answer is whole


class HttpLLM(LeanLLM):
    """`options` are laid over the request's own parameters; null takes one away."""

    model: str
    context_window: int = 0
    max_tokens: int = 2_048
    temperature: float = 0.2
    options: dict[str, Any] = Field(default_factory=dict)
    _client: aiohttp.ClientSession = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        try:
            canonical_json(self.options)
        except (TypeError, ValueError) as error:
            raise StartRefusedError(f"options of model {self.model!r} cannot be sent as JSON.") from error

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=self.model,
        )

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        exchange.begin(exchange.model, exchange.layout)
        to, body = self._request(messages, exchange, flat=flat)
        reader, deadline = self._reader(exchange), 0.0
        try:
            async with post_stream(self._client, to, body) as stream:
                while not reader.ended:
                    piece = await (stream.read_until(deadline) if deadline else stream.read())
                    if not piece:
                        break
                    delta = reader.read(piece)
                    if delta is not None:
                        yield delta
                    reader.check()
                    if reader.complete and not deadline:
                        deadline = asyncio.get_running_loop().time() + END_PATIENCE_S
                reader.check_end()
                await stream.drain()
        except LLMRefusedError as error:
            exchange.status = error.status
            raise

    @abstractmethod
    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        """Where to, and the body, which is noted in `exchange`."""

    @abstractmethod
    def _reader(self, exchange: Exchange) -> AnswerReader: ...


def without_none(own: dict[str, Any], options: dict[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    """`own` parameters with `options` over them, in the order of their first mention.

    An option that is None takes its parameter away; those in `fixed` are never touched.
    """
    laid = own | {name: value for name, value in options.items() if name not in fixed}
    return {name: value for name, value in laid.items() if value is not None or name in fixed}


def configured(entry: LLMSettings, answer_share: float) -> dict[str, Any]:
    """The fields of an HttpLLM that the model's table gives; the window is 0 when it is unknown."""
    window = entry.context_window or known_window(entry.model)
    return {
        "model": entry.model,
        "context_window": window,
        "max_tokens": answer_reserve(entry.max_tokens, window or UNKNOWN_WINDOW, answer_share),
        "temperature": entry.temperature,
        "options": merged_options(entry),
    }


def merged_options(entry: LLMSettings) -> dict[str, Any]:
    """`extra_body`, as the OpenAI SDK names what goes beside its own parameters, is laid flat."""
    extra = entry.options.get("extra_body")
    rest = {name: value for name, value in entry.options.items() if name != "extra_body"}
    return rest | extra if isinstance(extra, dict) else rest
