"""The doctor's checks of models: each is asked one short question, within a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore, TextNode

from core.errors import Cause, LLMUnavailableError, ModelFailure, UnavailableError
from core.prompt.layouts import lay_out
from core.prompt.messages import Message, Part, Role
from services.llm_service import NO_TEXTS, ModelEntry
from services.retrieval.foreign_rerankers import (
    AnyReranker,
    PairReranker,
    RerankerUnavailableError,
    scores_of_class,
)

LIMIT_S = 10.0
LLM_LIMIT_S = 60.0  # to load a model, or to read the question without a graphics card
ENOUGH_DELTAS = 32  # a talkative model is cut off here
QUESTION = "Reply with the word ok."

Unavailable = Callable[[str, ModelFailure], UnavailableError]


@dataclass(frozen=True, slots=True)
class Checked:
    """One model's check; `error` is None if the model answered, else its `failure` says why not."""

    name: str
    time_ms: float
    error: UnavailableError | None
    model_id: str = ""


async def check(
    name: str, ask: Awaitable[object], unavailable: Unavailable, model_id: str = "", limit_s: float = LIMIT_S
) -> Checked:
    """Await `ask` and time it; no answer within `limit_s` is reported as an `unavailable` error."""
    began, error = time.perf_counter(), None
    try:
        async with asyncio.timeout(limit_s):
            await ask
    except TimeoutError:
        error = unavailable("It did not answer in time.", ModelFailure(Cause.TIMEOUT))
    except UnavailableError as raised:
        error = raised
    return Checked(name, round((time.perf_counter() - began) * 1000, 1), error, model_id)


async def check_llm(entry: ModelEntry) -> Checked:
    name, model_id = f"model {entry.model_id}", entry.model_id
    return await check(name, _ask_llm(entry), LLMUnavailableError, model_id, LLM_LIMIT_S)


async def _ask_llm(entry: ModelEntry) -> None:
    """Ask without retries: the check is about the model's present state."""
    wrote, deltas = False, 0
    question = [Message(Role.USER, QUESTION, Part.QUESTION)]
    stream = entry.stream_laid(lambda layout: lay_out(question, layout, NO_TEXTS), report=None)
    async with aclosing(stream):
        async for delta in stream:
            wrote, deltas = wrote or bool(delta.text or delta.thinking), deltas + 1
            if wrote and deltas >= ENOUGH_DELTAS:
                return
    if not wrote:
        raise LLMUnavailableError("The model returned no text.", ModelFailure(Cause.EMPTY))


async def check_reranker(reranker: AnyReranker) -> Checked:
    return await check("reranker", _ask_reranker(reranker), RerankerUnavailableError)


async def _ask_reranker(reranker: AnyReranker) -> None:
    if isinstance(reranker, PairReranker):
        await reranker.judge_pairs([QUESTION], [QUESTION])
        return
    node = NodeWithScore(node=TextNode(text=QUESTION), score=1.0)
    await scores_of_class(reranker, [node], QUESTION)
