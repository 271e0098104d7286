"""A GGUF file as the model: llama.cpp without a server to install, in a process of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from pydantic import PrivateAttr

from config.settings import LLMSettings
from core.errors import LLMRefusedError, LLMUnavailableError, StartRefusedError
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import MESSAGES, PROMPT, Exchange, rebuild_body, wire_messages
from core.prompt.messages import Message
from services.adapters.http.endpoint import Endpoint
from services.adapters.llms.answer_reader import AnswerReader
from services.adapters.llms.gguf.engine import GgufEngine
from services.adapters.llms.gguf.options import check_gguf
from services.adapters.llms.openai import OpenAIReader
from services.adapters.llms.provider import HttpLLM
from services.models.windows import answer_reserve


class GgufLLM(HttpLLM):
    """Messages go through the model's own chat template, a flat prompt past it.

    Requests beyond `n_parallel` wait here, where one that is given up costs nothing. llama.cpp gives up an
    answer with its next token, and a prompt within a second and the `n_batch` tokens at hand; while another
    answer streams beside it, though, only when it has read the prompt to its end.
    """

    _engine: GgufEngine = PrivateAttr()
    _slots: asyncio.Semaphore = PrivateAttr()

    def __init__(self, engine: GgufEngine, **fields: Any) -> None:
        super().__init__(**fields)
        self._engine, self._client = engine, engine.client
        self._slots = asyncio.Semaphore(engine.n_parallel)

    @property
    def engine(self) -> GgufEngine:
        return self._engine

    async def aclose(self) -> None:
        """Cuts the answers under way and frees the model."""
        await self._engine.aclose()

    @asynccontextmanager
    async def turn_to_ask(self) -> AsyncIterator[GgufTurn]:
        """A slot of the running model; see core.llm_wrapper.TakesTurns."""
        async with self._slots:
            await self._engine.ensure_running()
            yield GgufTurn(self)

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        """The same with its turn, for callers that do not tell waiting from answering."""
        async with (
            self.turn_to_ask() as turn,
            aclosing(turn.stream_deltas(messages, exchange, flat=flat)) as deltas,
        ):
            async for delta in deltas:
                yield delta

    async def stream_in_slot(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> AsyncGenerator[LLMDelta, None]:
        try:
            async with aclosing(super().stream_deltas(messages, exchange, flat=flat)) as deltas:
                async for delta in deltas:
                    yield delta
        except LLMRefusedError:
            raise
        except LLMUnavailableError:
            await self._engine.notice_death()
            raise

    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        key, path = (PROMPT, "v1/completions") if flat else (MESSAGES, "v1/chat/completions")
        params: dict[str, Any] = {"model": self.model, key: None, "stream": True}
        params |= {"stream_options": {"include_usage": True}}
        params |= {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.options}
        body = rebuild_body(params, key, wire_messages(messages, key))
        exchange.sent(body)
        return self._engine.endpoint(path), body

    def _reader(self, exchange: Exchange) -> AnswerReader:
        return OpenAIReader(exchange)


class GgufTurn:
    """One slot of the model, held as long as its `turn_to_ask` is open."""

    def __init__(self, llm: GgufLLM) -> None:
        self._llm = llm

    def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        return self._llm.stream_in_slot(messages, exchange, flat=flat)


async def open_gguf_llm(entry: LLMSettings, answer_share: float, model_id: str = "default") -> GgufLLM:
    """Check the settings and load the model. Raises StartRefusedError that names key, value and remedy."""
    table = f"[llms.{model_id}]"
    spec, sampling = await asyncio.to_thread(check_gguf, entry, table)
    engine = GgufEngine(spec)
    try:
        await engine.start()
    except StartRefusedError as error:
        await engine.aclose()
        raise StartRefusedError(f"{table} model = {entry.model!r}: {error}") from error
    except BaseException:
        await engine.aclose()
        raise
    return GgufLLM(
        engine,
        model=spec.name,
        context_window=engine.window,
        max_tokens=answer_reserve(entry.max_tokens, engine.window, answer_share),
        temperature=entry.temperature,
        options=msgspec.to_builtins(sampling),
    )
