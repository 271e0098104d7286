"""The embedded store with many chunks: retrieval time, size, memory and start-up.

`python -m benchmarks.store.scale --chunks 200000` fills a temporary store through the real client and its
store process, then queries the real retriever. `--vectors FILE.npy` uses real vectors (rows of 384 floats)
instead of synthetic ones, and perturbed copies if there are too few. `--folder` keeps the filled store for
reuse.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import uvloop

from benchmarks.load import alongside
from benchmarks.report import percentile
from benchmarks.store.scale_data import OTHERS, OWNER, RARE_TAG, Corpus, ExactStore, document_id, recall
from config.settings import Settings, load_settings
from core.knowledge import KnowledgeFilter
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.retrieval.retriever import Retriever
from services.store.collections import ensure_collections

FILL_BATCH, WRITE_BATCH, WRITE_EVERY_S = 500, 16, 0.2
LAG_EVERY_S = 0.002
RECALL_QUESTIONS = 60
LATE = 0.99
HEAD = "| case | p50 ms | p95 | p99 | store's CPU ms | retriever's CPU ms | loop lag p99 ms |"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    forms: int
    owner: str = OWNER
    limits: KnowledgeFilter = KnowledgeFilter()  # noqa: RUF009 — frozen
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in milliseconds; CPU time per question."""

    name: str
    p50: float
    p95: float
    p99: float
    store_cpu: float
    retriever_cpu: float
    loop_lag: float

    def row(self) -> str:
        figures = (self.p50, self.p95, self.p99, self.store_cpu, self.retriever_cpu, self.loop_lag)
        return f"| {self.name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |"


@dataclass(slots=True)
class Figures:
    """Sizes in MB of 2^20 bytes, per chunk in bytes; `load` is the machine's load average of the last
    minute."""

    chunks: int
    fill_per_s: float = 0.0
    disk_mb: float = 0.0
    disk_per_chunk: float = 0.0
    resident_mb: float = 0.0
    own_mb: float = 0.0
    own_per_chunk: float = 0.0
    open_s: float = 0.0
    compact_s: float = 0.0
    recall_at_20: float = 0.0
    load: float = 0.0


CASES = (
    Case("two forms", 2),
    Case("one form", 1),
    Case("two forms, an owner of 2 %", 2, OTHERS[3]),
    Case("two forms, one document", 2, limits=KnowledgeFilter(document_ids=(document_id(1),))),
    Case("two forms, a tag of 1 %", 2, limits=KnowledgeFilter(tags=(RARE_TAG,))),
    Case("two forms, while chunks are written", 2, writes=True),
)


class Bench:
    def __init__(self, settings: Settings, corpus: Corpus, folder: Path) -> None:
        self._settings = settings
        self._collection = settings.store.knowledge_collection
        self._corpus = corpus
        self._folder = folder
        self.figures = Figures(corpus.size)

    async def fill(self) -> None:
        """Fill the store; only the time spent in the store counts."""
        async with open_edge_client(self._folder) as client:
            store = self._settings.store
            await ensure_collections(client, store, embedding_name="made", dimension=self._corpus.dimension)
            if (await client.count(self._collection)).count == self._corpus.size:
                return
            taken = 0.0
            for batch in self._corpus.points(FILL_BATCH):
                started = time.perf_counter()
                await client.upsert(self._collection, batch)
                taken += time.perf_counter() - started
            self.figures.fill_per_s = self._corpus.size / taken

    async def ask(self, questions: int, repeats: int) -> list[Timing]:
        """Return, of `repeats` runs per case, the one with the lowest median, to exclude other load."""
        started = time.perf_counter()
        async with open_edge_client(self._folder) as client:
            self.figures.open_s = time.perf_counter() - started
            runs = [await self._timing(client, case, questions) for case in CASES for _ in range(repeats)]
            await self._weigh(client)
            await self._compare(client)
        best: dict[str, Timing] = {}
        for run in runs:
            best[run.name] = min(run, best.get(run.name, run), key=lambda timing: timing.p50)
        return list(best.values())

    async def compact(self) -> None:
        async with open_edge_client(self._folder) as client:
            started = time.perf_counter()
            await client.compact(self._collection)
            self.figures.compact_s = time.perf_counter() - started

    async def _timing(self, client: EdgeClient, case: Case, questions: int) -> Timing:
        retriever = Retriever(client, self._collection, self._settings.retrieval)
        store, taken = psutil.Process(client.process_id), list[float]()
        asked = self._corpus.questions(questions, case.forms)
        writing = alongside(self._write(client)) if case.writes else nullcontext()
        async with writing, _lags() as lags:
            store_cpu, own_cpu = _cpu_s(store), time.process_time()
            for query in asked:
                started = time.perf_counter()
                await retriever.search(query, [case.owner], case.limits)
                taken.append(time.perf_counter() - started)
            store_cpu, own_cpu = _cpu_s(store) - store_cpu, time.process_time() - own_cpu
        p50, p95, p99 = (1000 * percentile(taken, share) for share in (0.5, 0.95, LATE))
        each = 1000 / questions
        lag = 1000 * percentile(lags, LATE)
        return Timing(case.name, p50, p95, p99, store_cpu * each, own_cpu * each, lag)

    async def _write(self, client: EdgeClient) -> None:
        for batch in self._corpus.points(WRITE_BATCH):
            await client.upsert(self._collection, batch)
            await asyncio.sleep(WRITE_EVERY_S)

    async def _weigh(self, client: EdgeClient) -> None:
        """Measure sizes; `own_mb` excludes pages of the store's files, which the kernel can reclaim."""
        figures, memory = self.figures, psutil.Process(client.process_id).memory_info()
        disk = await client.size_bytes()
        own = memory.rss - memory.shared
        figures.disk_mb, figures.disk_per_chunk = disk / 2**20, disk / figures.chunks
        figures.resident_mb, figures.own_mb = memory.rss / 2**20, own / 2**20
        figures.own_per_chunk = own / figures.chunks

    async def _compare(self, client: EdgeClient) -> None:
        exact = ExactStore(client, self._corpus)
        asked = self._corpus.questions(RECALL_QUESTIONS, 2)
        ours = Retriever(client, self._collection, self._settings.retrieval)
        reference = Retriever(exact, self._collection, self._settings.retrieval)
        self.figures.recall_at_20 = await recall(ours, reference, asked, [OWNER])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@asynccontextmanager
async def _lags() -> AsyncIterator[list[float]]:
    """Collect how late the event loop wakes up, in seconds, while the block runs."""
    lags: list[float] = []

    async def watch() -> None:
        while True:
            due = time.perf_counter() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            lags.append(max(0.0, time.perf_counter() - due))

    async with alongside(watch()):
        yield lags


async def run(options: argparse.Namespace) -> tuple[Figures, list[Timing]]:
    real = None if options.vectors is None else np.load(options.vectors)
    corpus = Corpus(options.chunks, real)
    with tempfile.TemporaryDirectory(prefix="wenmai-scale-") as temporary:
        folder = options.folder or Path(temporary)
        bench = Bench(load_settings(store={"data_dir": folder}), corpus, folder / "store")
        await bench.fill()
        timings = await bench.ask(options.questions, options.repeats)
        if not options.no_compaction:
            await bench.compact()
    bench.figures.load = os.getloadavg()[0]
    return bench.figures, timings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store.scale", description=__doc__)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--questions", type=int, default=100, help="per case")
    parser.add_argument("--repeats", type=int, default=3, help="runs per case; the fastest counts")
    parser.add_argument("--vectors", type=Path, help="a .npy file of real vectors")
    parser.add_argument("--folder", type=Path, help="keep the filled store here, or reuse an existing one")
    parser.add_argument("--no-compaction", action="store_true")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the server does
        figures, timings = runner.run(run(options))
    for name, value in asdict(figures).items():
        print(f"{name:<16} {value:,.3f}" if isinstance(value, float) else f"{name:<16} {value:,}")
    print(
        "\n".join(["", HEAD, "|" + " --- |" * (HEAD.count("|") - 1), *(timing.row() for timing in timings)])
    )
    if options.out is not None:
        report = {"figures": asdict(figures), "timings": [asdict(timing) for timing in timings]}
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
