"""The load client and its baseline, in small: what `make bench` counts must be true."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from benchmarks.cases import OURS, RAW, Case
from benchmarks.client import ask
from benchmarks.load import Target, run_case
from benchmarks.processes import Started, running_floor, running_relay, running_stub
from benchmarks.report import CaseResult, ColdStarts, Report, figures, percentile
from benchmarks.stub_llm import STAMP_EVERY, Shape

SMALL = Case("small", streams=2, answers=2, shape=Shape(rate=0, tokens=30), spread_s=0.0, probe=True)


@pytest.fixture(scope="module")
def stub() -> Iterator[Started]:
    with running_stub() as started:
        yield started


@pytest.fixture(scope="module")
def relay(stub: Started) -> Iterator[Target]:
    with running_relay(stub.url) as started:
        yield Target("raw", started.url, started.pid, RAW)


async def test_every_answer_through_the_relay_is_complete_and_timed(stub: Started, relay: Target) -> None:
    samples = await run_case(SMALL, relay, stub.url)
    assert (samples.errors, samples.wrong_lengths) == ([], 0)
    assert samples.tokens == 4 * 30
    assert len(samples.over_s) == len(samples.first_s) == 4
    assert len(samples.relay_s) == 4 * 30 / STAMP_EVERY
    assert all(0 < seconds < 5 for seconds in samples.over_s + samples.relay_s + samples.lag_s)
    assert samples.peak_mb > 1


async def test_the_floor_continues_a_session_and_its_first_question_is_not_timed(stub: Started) -> None:
    """Discriminates: a session lost on the way; the first question of a conversation counted among the
    follow-ups."""
    case = Case("follow-ups", 2, 3, Shape(rate=0, tokens=30), spread_s=0.0, follow_ups=True)
    with running_floor(stub.url) as floor:
        samples = await run_case(case, Target("floor", floor.url, floor.pid, OURS), stub.url)
        first = await ask(floor.url, OURS, "Anybody?", "1")
        second = await ask(floor.url, OURS, "Anybody else?", "2", first.session_id)
    assert (samples.errors, samples.wrong_lengths, samples.tokens) == ([], 0, 6 * 30)
    assert len(samples.over_s) == len(samples.first_s) == 4
    assert first.session_id == second.session_id != ""


async def test_the_stub_keeps_its_configured_pace(stub: Started, relay: Target) -> None:
    slow = Case("slow", streams=1, answers=1, shape=Shape(ttft_ms=150, rate=50, tokens=10), spread_s=0.0)
    samples = await run_case(slow, relay, stub.url)
    assert samples.first_s[0] >= 0.15
    assert samples.tokens == 10


async def test_an_unreachable_server_is_an_error_and_not_a_fast_answer() -> None:
    with running_stub() as deleted:
        pass
    answer = await ask(deleted.url, RAW, "Anybody?", "1")
    assert answer.problem
    assert answer.first_content_s is None


async def test_a_refusal_is_an_error() -> None:
    with running_relay("http://127.0.0.1:1") as broken:
        assert (await ask(broken.url, RAW, "Anybody?", "1")).problem == "HTTP 500"


def test_a_percentile_is_a_measured_value() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert math.isnan(percentile([], 0.5))


async def test_the_table_has_a_row_for_each_server_and_their_ratio(stub: Started, relay: Target) -> None:
    measured = figures(await run_case(SMALL, relay, stub.url))
    report = Report((CaseResult("small", measured, measured, measured),), ColdStarts(0.4, 1.5, 2.0, 10_000))
    lines = report.as_table().splitlines()
    servers = [line.split(" | ")[1] for line in lines[2:7]]
    assert servers == ["raw", "floor", "Wenmai", "× raw", "× floor"]
    assert len({line.count("|") for line in lines[:7]}) == 1
    assert "1.0 ×" in lines[5]
    assert lines[-1] == (
        "Cold start to ready: raw 0.40 s, ours 1.50 s (empty store), 2.00 s (10,000 turns stored)."
    )
