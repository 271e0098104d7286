"""The cost of acknowledging writes only once they are on disk: `python -m benchmarks.durability`.

Two servers, one with DURABILITY=power and one with DURABILITY=process, each with its own store on the disk of
the temporary folder, are queried alternately, so that other load on the machine affects both. They have no
documents, since retrieval costs both the same. Then ingestion is measured, as a share of the embedder's own
speed (benchmarks.store.ingestion).
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import uvloop

from benchmarks.cases import CASES, OURS
from benchmarks.load import Samples, Target, run_case
from benchmarks.processes import running_stub
from benchmarks.report import percentile
from benchmarks.store import ingestion
from tests.support.servers.server import cold, running_server

WAYS = ("process", "power")
_FLUSHES = re.compile(r"^\w*store_flushes_total (\S+)", re.M)
_PER_TEXT_S = 0.1


@contextmanager
def running_servers(folder: Path) -> Iterator[tuple[str, list[Target]]]:
    """Yield the stub's address and one server per durability setting."""
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        targets = []
        for way in WAYS:
            (folder / way).mkdir()
            own = {"OPENAI_BASE_URL": f"{stub.url}/v1", "LLM_MODEL": "stub", "DURABILITY": way}
            server = stack.enter_context(running_server(folder / way, cold, LOAD_SAMPLE="false", **own))
            targets.append(Target(way, server.url, server.pid, OURS))
        yield stub.url, targets


async def measure(rounds: int) -> None:
    cases = [case for case in CASES if case.name in ("c1", "c50")]
    with TemporaryDirectory() as folder, running_servers(Path(folder)) as (stub_url, targets):
        for target in targets:
            await run_case(cases[0], target, stub_url)  # warm-up: the first answers include lazy loading
        for case in cases:
            pooled: defaultdict[str, Samples] = defaultdict(Samples)
            seconds, flushes = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0.0)
            for number in range(rounds):
                for target in targets if number % 2 else reversed(targets):
                    before, begun = _flushes(target.url), time.monotonic()
                    samples = await run_case(case, target, stub_url)
                    seconds[target.name] += time.monotonic() - begun - samples.settle_s
                    flushes[target.name] += _flushes(target.url) - before
                    pooled[target.name].add(samples)
            for way in WAYS:
                print(_row(case.name, way, pooled[way], seconds[way], flushes[way]), flush=True)


def _flushes(url: str) -> float:
    match = _FLUSHES.search(httpx.get(f"{url}/metrics").text)
    return float(match[1]) if match else 0.0


def _row(case: str, way: str, samples: Samples, seconds: float, flushes: float) -> str:
    def ms(values: list[float]) -> str:
        return f"{percentile(values, 0.5) * 1_000:.1f} / {percentile(values, 0.95) * 1_000:.1f}"

    faults = f"{len(samples.errors)} / {samples.wrong_lengths}"
    speed, per_s = samples.tokens / seconds, flushes / seconds
    times = f"{ms(samples.over_s)} | {ms(samples.end_s)}"
    return f"| {case} | {way} | {times} | {speed:.1f} | {per_s:.1f} | {faults} |"


async def read_in(files: int, parts: int) -> None:
    for way in WAYS:
        os.environ["DURABILITY"] = way
        for result in await ingestion.run(_PER_TEXT_S, files, parts):
            print(f"| {result.name}, {result.chunks} passages | {way} | {result.share:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="per server and case (default %(default)s)")
    rounds = parser.parse_args().rounds
    print(f"load average {os.getloadavg()[0]:.2f} before the run\n")
    print("| case | durability | over ms p50 / p95 | from the last piece to DONE ms p50 / p95 | tokens/s "
          "| flushes/s | errors / wrong lengths |\n|" + " --- |" * 7)  # fmt: skip
    uvloop.run(measure(rounds))
    print("\n| read in | durability | of the embedder's speed |\n| --- | --- | --- |")
    uvloop.run(read_in(files=100, parts=100))
    print(f"\nload average {os.getloadavg()[0]:.2f} after the run")


if __name__ == "__main__":
    main()
