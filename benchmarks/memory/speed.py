"""How long recall takes, excluding embedding the question: `python -m benchmarks.memory.speed`.

One owner has `--memories` memories, others have the rest of `--all`, of twenty kinds: the keyword of a
question is in a twentieth of them; with `--one-kind` in all, the worst case of keyword search. Vectors are
random: only the store and the selection are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path
from uuid import UUID

import numpy as np

from api.wiring.parts import open_store
from benchmarks.memory.attributes import ATTRIBUTES
from config.settings import Settings, load_settings
from core.memory.record import Memory, MemoryType
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.memory.records import MemoryRecords
from services.memory.turns import MemoryRecall, RecallScope
from services.store.collections import ensure_collections
from services.store.points import batches

DIMENSION, QUESTIONS, INSTRUCTIONS = 384, 200, 10
_RANDOM = np.random.default_rng(5)


async def measure(settings: Settings, memories: int, everybody: int, kinds: int) -> dict[str, float]:
    """Measure once in the process that wrote the memories, and once after reopening the store."""
    figures: dict[str, float] = {}
    for when in ("filled", "opened"):
        async with open_store(settings.store) as store:
            await ensure_collections(store, settings.store, embedding_name="random", dimension=DIMENSION)
            records = MemoryRecords(store, settings.store.memory_collection, alone=True)
            if when == "filled":
                await fill(records, memories, everybody, kinds)
            recall = MemoryRecall(records, settings.conversation, "multilingual-e5-small")
            one, nobody = await asked(recall, memories, kinds)
        figures |= {f"{when}_p{at}_ms": float(np.percentile(one, at)) for at in (50, 99)}
        figures[f"{when}_first_ms"] = one[0]
        figures[f"{when}_nobody_p99_ms"] = float(np.percentile(nobody[1:], 99))
    return figures


async def fill(records: MemoryRecords, memories: int, everybody: int, kinds: int) -> None:
    for batch in batches(range(everybody), 500):
        pairs = zip(batch, _vectors(len(batch)), strict=True)
        written = [(_memory(number, memories, kinds), vector) for number, vector in pairs]
        await records.put_many(written)


async def asked(recall: MemoryRecall, memories: int, kinds: int) -> tuple[list[float], list[float]]:
    """Return each question's milliseconds, for the owner with memories and for one without."""
    one: list[float] = []
    nobody: list[float] = []
    gc.collect()
    gc.freeze()  # as the server does after start-up
    for number, vector in enumerate(_vectors(QUESTIONS)):
        at = number * 37 % memories
        question = f"What is my {_kind(at, kinds)} {at}?"
        query = Query(question, (QueryForm(question, vector, encode_query(question)),))
        for owner, times in (("one", one), ("nobody", nobody)):
            began = time.perf_counter()
            if await recall.has_any(owner):
                await recall.candidates(query, RecallScope(owner, "session", is_new=True))
            times.append((time.perf_counter() - began) * 1000)
    return one, nobody


def _vectors(number: int) -> list[list[float]]:
    values = _RANDOM.normal(size=(number, DIMENSION))
    return [list(map(float, each / np.linalg.norm(each))) for each in values]


def _kind(number: int, kinds: int) -> str:
    return ATTRIBUTES[number % kinds].name


def _memory(number: int, memories: int, kinds: int) -> Memory:
    owner = "one" if number < memories else f"other {number % 200}"
    kind = MemoryType.INSTRUCTION if number < INSTRUCTIONS else MemoryType.FACT
    content = f"The user's {_kind(number, kinds)} {number} is value {number % 97}"
    return Memory(str(UUID(int=number + 1)), owner, content, kind, created_us=number + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--all", type=int, default=200_000)
    parser.add_argument("--one-kind", action="store_true", help="all memories contain the question's keyword")
    options = parser.parse_args()
    kinds = 1 if options.one_kind else len(ATTRIBUTES)
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(store={"data_dir": Path(folder), "durability": "process"})
        figures = asyncio.run(measure(settings, options.memories, options.all, kinds))
    for name, value in figures.items():
        print(f"{name:24}{value:.2f}")


if __name__ == "__main__":
    main()
