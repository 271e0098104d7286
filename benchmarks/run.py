"""`make bench`: runs every case on the raw relay, the floor and our server alternately, on loopback."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import uvloop

from benchmarks.cases import CASES, DOOR, DOOR_CASES, OURS, QUICK_CASES, RAW, Case
from benchmarks.cold_start import empty_start_s, raw_start_s, store_sessions, stored_start_s
from benchmarks.load import Samples, Target, run_case
from benchmarks.processes import ProcessTree, running_floor, running_relay, running_stub
from benchmarks.report import CaseResult, ColdStarts, Figures, Report, figures
from tests.support.servers.sample import wait_for_sample
from tests.support.servers.server import cold, running_server

STORED_TURNS = 10_000
ROUNDS = 2
DOOR_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool
    cold_start: bool
    json_file: Path | None
    doors: bool
    only: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """The four processes: the stub, and the three servers that call it."""

    stub_url: str
    raw: Target
    floor: Target
    ours: Target


@contextmanager
def running_bench(folder: Path) -> Iterator[Bench]:
    """Start the processes; `folder` is the server's data folder."""
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        relay = stack.enter_context(running_relay(stub.url))
        floor = stack.enter_context(running_floor(stub.url))
        server = stack.enter_context(
            running_server(folder, cold, OPENAI_BASE_URL=f"{stub.url}/v1", LLM_MODEL="stub")
        )
        _say("waiting for the sample knowledge base …")
        wait_for_sample(server.url)
        yield Bench(
            stub.url,
            Target("raw", relay.url, relay.pid, RAW),
            Target("floor", floor.url, floor.pid, OURS),
            Target("wenmai", server.url, server.pid, OURS),
        )


async def measure(case: Case, bench: Bench, rounds: int) -> CaseResult:
    measured = await in_turns(case, (bench.raw, bench.floor, bench.ours), bench.stub_url, rounds)
    return CaseResult(case.name, *(measured[name] for name in ("raw", "floor", "wenmai")))


async def in_turns(case: Case, targets: Sequence[Target], stub_url: str, rounds: int) -> dict[str, Figures]:
    """Measure the targets alternately, so that other load on the machine affects all of them."""
    pooled: defaultdict[str, Samples] = defaultdict(Samples)
    for number in range(rounds):
        for target in targets:
            _say(f"{case.name} {target.name}, round {number + 1} of {rounds} …")
            pooled[target.name].add(await run_case(case, target, stub_url))
    return {name: figures(samples) for name, samples in pooled.items()}


async def doors(rounds: int) -> int:
    """Compare /v1/chat/completions with our own endpoint on the same server."""
    with TemporaryDirectory() as folder, running_bench(Path(folder)) as bench:
        door = Target("/v1", bench.ours.url, bench.ours.pid, DOOR)
        await in_turns(DOOR_CASES[0], (bench.ours, door), bench.stub_url, 1)
        faults = 0
        for case in DOOR_CASES:
            measured = await in_turns(case, (bench.ours, door), bench.stub_url, rounds)
            own, beside = measured["wenmai"], measured["/v1"]
            faults += sum(each.errors + each.wrong_lengths for each in (own, beside))
            print(
                f"{case.name}: before the model {own.over_p50} and {beside.over_p50} ms, first content "
                f"{own.first_p50} and {beside.first_p50} ms (p50, own and /v1, {own.answers} answers each); "
                f"CPU s per 1,000 tokens, answering {own.answering_cpu_s_per_1000} and "
                f"{beside.answering_cpu_s_per_1000}, all {own.cpu_s_per_1000} and {beside.cpu_s_per_1000}"
            )
    return int(faults > 0)


async def warm(cases: Sequence[Case], bench: Bench) -> None:
    """Warm up: the first answers include imports and connections and are not counted."""
    for target in (bench.raw, bench.floor, bench.ours):
        await run_case(cases[0], target, bench.stub_url)


async def run(options: Options) -> Report:
    cases = [case for case in (QUICK_CASES if options.quick else CASES) if case.name in options.only]
    with TemporaryDirectory() as folder:
        stored = {case.session_id: case.stored_turns for case in cases if case.stored_turns}
        await store_sessions(Path(folder), stored)
        with running_bench(Path(folder)) as bench:
            start_mb = ProcessTree(bench.ours.pid).resident_mb()
            await warm(QUICK_CASES, bench)
            results = [await measure(case, bench, 1 if options.quick else ROUNDS) for case in cases]
            cold_starts = await _cold_starts(bench.stub_url) if options.cold_start else None
    return Report(tuple(results), cold_starts, start_mb)


async def _cold_starts(stub_url: str) -> ColdStarts:
    _say("cold starts …")
    stored = await stored_start_s(STORED_TURNS)
    return ColdStarts(raw_start_s(stub_url), empty_start_s(), stored, STORED_TURNS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if an answer failed or had the wrong length."""
    options = parse(arguments)
    before = os.getloadavg()[0]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.doors:
            return runner.run(doors(1 if options.quick else DOOR_ROUNDS))
        report = runner.run(run(options))
    print(f"{psutil.cpu_count()} cores, load average {before:.2f} before the run\n\n{report.as_table()}")
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
    return int(any(f.errors or f.wrong_lengths for r in report.cases for f in (r.raw, r.floor, r.ours)))


def parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter answers, to check that it works"
    )
    parser.add_argument("--no-cold-start", action="store_true", help="skip the cold starts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--doors", action="store_true", help="only compare /v1 with our own endpoint")
    names = [case.name for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this case; may be repeated")
    parsed = parser.parse_args(arguments)
    only = tuple(parsed.case or names)
    return Options(parsed.quick, not parsed.no_cold_start, parsed.json, parsed.doors, only)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
