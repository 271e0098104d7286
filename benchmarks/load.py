"""Run one case against one server: the streams, with a memory and a health probe alongside, then the
totals."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import httpx

from benchmarks.cases import QUESTIONS, Case
from benchmarks.client import Answer, Dialect, ask, time_get
from benchmarks.processes import ProcessTree
from benchmarks.stub_llm import Shape

PROBE_S = 0.05
_tags = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test."""

    name: str
    url: str
    pid: int
    dialect: Dialect


@dataclass(slots=True)
class Samples:
    """The samples of one case on one server; durations in seconds, one entry per answer, stamp or probe.

    `end_s` is from an answer's last piece to its end, `stream_s` from its question to its end;
    `answering_cpu_s` is the CPU time until the last answer ended, `cpu_s` until the server was idle again,
    `settle_s` later; `idle_mb` is the resident memory then.
    """

    over_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    stream_s: list[float] = field(default_factory=list)
    relay_s: list[float] = field(default_factory=list)
    first_relay_s: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)
    tokens: int = 0
    answering_cpu_s: float = 0.0
    cpu_s: float = 0.0
    settle_s: float = 0.0
    peak_mb: float = 0.0
    idle_mb: float = 0.0
    errors: list[str] = field(default_factory=list)
    wrong_lengths: int = 0

    def add(self, other: Samples) -> None:
        """Pool another round of the same case: everything adds up, memory and waiting excepted."""
        for name in (each.name for each in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if name in ("settle_s", "peak_mb"):
                setattr(self, name, max(mine, theirs))
            else:
                setattr(self, name, theirs if name == "idle_mb" else mine + theirs)


async def run_case(case: Case, target: Target, stub_url: str) -> Samples:
    set_shape(stub_url, case.shape)
    tree, lags = ProcessTree(target.pid), list[float]()
    cpu_before = tree.cpu_s()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(alongside(tree.watch_memory()))
        if case.probe:
            await stack.enter_async_context(alongside(probe(target.url, lags)))
        streams = [_stream(case, target, number) for number in range(case.streams)]
        answers = list(itertools.chain.from_iterable(await asyncio.gather(*streams)))
    ended, answering_cpu_s = time.monotonic(), tree.cpu_s() - cpu_before
    cpu_s = await tree.settled_cpu_s() - cpu_before
    samples = _summed(case, answers, _arrivals(stub_url))
    samples.lag_s, samples.cpu_s, samples.peak_mb = lags, cpu_s, tree.peak_mb
    samples.answering_cpu_s, samples.settle_s = answering_cpu_s, time.monotonic() - ended
    samples.idle_mb = tree.resident_mb()
    return samples


async def _stream(case: Case, target: Target, number: int) -> list[Answer]:
    await asyncio.sleep(case.spread_s * number / case.streams)
    answers: list[Answer] = []
    session_id = case.session_id
    for turn in range(case.answers):
        question = QUESTIONS[(number * 5 + turn) % len(QUESTIONS)]
        answers.append(await ask(target.url, target.dialect, question, str(next(_tags)), session_id))
        answers[-1].timed = turn > 0 or not case.follow_ups
        session_id = answers[-1].session_id if case.follow_ups else ""
    return answers


async def probe(url: str, lags: list[float]) -> None:
    """Measure how long the event loop makes a cheap request wait."""
    while True:
        lags.append(await time_get(url, "/health/live"))
        await asyncio.sleep(PROBE_S)


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None, None]:
    """Run the endless `work` until the block ends; raises its failure."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


def _summed(case: Case, answers: list[Answer], arrivals: dict[str, float]) -> Samples:
    whole = [answer for answer in answers if not answer.problem]
    return Samples(
        over_s=[arrivals[each.tag] - each.sent_s for each in whole if each.timed and each.tag in arrivals],
        first_s=[
            each.first_content_s - each.sent_s
            for each in whole
            if each.timed and each.first_content_s is not None
        ],
        end_s=[each.ended_s - each.last_content_s for each in whole],
        stream_s=[each.ended_s - each.sent_s for each in whole],
        relay_s=[relay for answer in whole for relay in answer.relay_s],
        first_relay_s=[answer.relay_s[0] for answer in whole if answer.relay_s],
        tokens=sum(answer.tokens for answer in answers),
        errors=[answer.problem for answer in answers if answer.problem],
        wrong_lengths=sum(answer.tokens != case.shape.tokens for answer in whole),
    )


def set_shape(stub_url: str, shape: Shape) -> None:
    httpx.post(f"{stub_url}/shape", json=asdict(shape)).raise_for_status()


def _arrivals(stub_url: str) -> dict[str, float]:
    arrivals: dict[str, float] = httpx.get(f"{stub_url}/arrivals").json()
    return arrivals
