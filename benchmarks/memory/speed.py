"""How long recall takes beyond the question's embedding: `python -m benchmarks.memory.speed`.

One owner has so many memories, others have as many as make `--all` together. Vectors are random: what is
measured is the store and the judging.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from uuid import UUID

import numpy as np

from api.wiring.parts import open_store
from config.settings import Settings, load_settings
from core.memory.record import Memory, MemoryType
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.memory.recall import MemoryRecall, RecallScope
from services.memory.records import MemoryRecords
from services.store.collections import ensure_collections
from services.store.pages import batches

DIMENSION, QUESTIONS, INSTRUCTIONS = 384, 200, 10


async def measure(settings: Settings, memories: int, everybody: int) -> dict[str, float]:
    random = np.random.default_rng(5)

    def vector() -> list[float]:
        values = random.normal(size=DIMENSION)
        return list(map(float, values / np.linalg.norm(values)))

    def memory(number: int) -> Memory:
        owner = "one" if number < memories else f"other {number % 200}"
        kind = MemoryType.INSTRUCTION if number < INSTRUCTIONS else MemoryType.FACT
        content = f"The user's item {number} is value {number % 97}"
        return Memory(str(UUID(int=number + 1)), owner, content, kind, created_us=number + 1)

    async with open_store(settings.store) as store:
        await ensure_collections(store, settings.store, embedding_name="random", dimension=DIMENSION)
        records = MemoryRecords(store, settings.store.memory_collection, alone=True)
        recall = MemoryRecall(records, settings.conversation, "multilingual-e5-small")
        for batch in batches(range(everybody), 500):
            await records.put_many([(memory(number), vector()) for number in batch])
        seconds: list[float] = []
        without: list[float] = []
        for number in range(QUESTIONS):
            question = f"What is my item {number * 37 % memories}?"
            query = Query(question, (QueryForm(question, vector(), encode_query(question)),))
            for owner, times in (("one", seconds), ("nobody", without)):
                began = time.perf_counter()
                if await recall.has_any(owner):
                    await recall.candidates(query, RecallScope(owner, "session", is_new=True))
                times.append(time.perf_counter() - began)
    p50, p99 = (float(np.percentile(seconds, at)) * 1000 for at in (50, 99))
    return {
        "recall_p50_ms": p50,
        "recall_p99_ms": p99,
        "nobody_p99_ms": float(np.percentile(without[1:], 99)) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--all", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(store={"data_dir": Path(folder), "durability": "process"})
        figures = asyncio.run(measure(settings, options.memories, options.all))
    for name, value in figures.items():
        print(f"{name:16}{value:.2f}")


if __name__ == "__main__":
    main()
