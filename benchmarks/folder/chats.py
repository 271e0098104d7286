"""Chats that stream while something else runs, and how evenly their tokens arrive."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.cases import OURS, QUESTIONS
from benchmarks.client import Answer, ask
from benchmarks.load import alongside, probe, set_shape
from benchmarks.stub_llm import Shape
from scripts.evaluation.figures import quantile

TOKENS = 100
_tags = itertools.count(1)


@dataclass(slots=True)
class Chats:
    """`lags_s` are the durations of a cheap request meanwhile, which show how long the event loop is
    blocked."""

    answers: list[Answer] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        cut = [f"{each.tokens} tokens" for each in self.answers if not each.problem and each.tokens != TOKENS]
        return [each.problem for each in self.answers if each.problem] + cut

    def figures(self) -> dict[str, float]:
        """Figures in milliseconds; the lateness of tokens is measured from when the model sent them."""
        firsts = [a.first_content_s - a.sent_s for a in self.answers if a.first_content_s is not None]
        relays = [relay for answer in self.answers for relay in answer.relay_s]
        return {
            "answers": len(self.answers),
            "problems": len(self.problems),
            "first token p50": _ms(firsts, 0.5),
            "first token p95": _ms(firsts, 0.95),
            "token late p50": _ms(relays, 0.5),
            "token late p99": _ms(relays, 0.99),
            "token late max": _ms(relays, 1.0),
            "health p99": _ms(self.lags_s, 0.99),
            "health max": _ms(self.lags_s, 1.0),
        }


@asynccontextmanager
async def chatting(url: str, stub_url: str, streams: int) -> AsyncGenerator[Chats, None]:
    """Run `streams` concurrent chats until the block ends; running answers are read to their end."""
    set_shape(stub_url, Shape(ttft_ms=300, rate=40, tokens=TOKENS))
    chats, over = Chats(), asyncio.Event()
    async with alongside(probe(url, chats.lags_s)):
        tasks = [asyncio.create_task(_chat(url, number, chats, over)) for number in range(streams)]
        try:
            yield chats
        finally:
            over.set()
            await asyncio.gather(*tasks)


async def _chat(url: str, number: int, chats: Chats, over: asyncio.Event) -> None:
    await asyncio.sleep(number * 0.15)
    for turn in itertools.count():
        if over.is_set():
            return
        question = QUESTIONS[(number * 5 + turn) % len(QUESTIONS)]
        chats.answers.append(await ask(url, OURS, question, str(next(_tags))))


def _ms(values: list[float], share: float) -> float:
    return round(1_000 * quantile(values, share), 1)
