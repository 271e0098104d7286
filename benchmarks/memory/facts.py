"""Recall of facts asked for in other words: `python -m benchmarks.memory.facts [--people 100] [--seed 7]`.

Each person has a memory per attribute. Each is asked for with two questions in the person's language and two
in the other: is the right memory among those recalled? And how often is any memory recalled for an unrelated
question?
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from api.wiring.parts import open_embedding, open_store
from benchmarks.memory.attributes import KINDS, Attribute, Person, people
from config.settings import Settings, load_settings
from core.memory.record import MemoryDraft
from core.relevance.query import Query
from services.memory.records import MemoryRecords
from services.memory.turns import MemoryRecall, RecallScope
from services.memory.writing import MemoryWriter
from services.retrieval.query_forms import QueryBuilder
from services.store.collections import ensure_collections


class Bench:
    def __init__(self, recall: MemoryRecall, queries: QueryBuilder) -> None:
        self._recall, self._queries = recall, queries
        self._built: dict[str, Query] = {}  # everybody is asked the same questions

    async def recalled(self, question: str, owner: str) -> list[str]:
        """Return the memories that would be put into the prompt, best first."""
        query = self._built.get(question) or await self._queries.build(question, [])
        self._built[question] = query
        candidates = await self._recall.candidates(query, RecallScope(owner, "another session", is_new=True))
        chosen = self._recall.choose(candidates, frozenset())
        return [each.memory.content for each in chosen.memories]


async def measure(settings: Settings, number: int, seed: int, kinds: str, *, shows: bool) -> dict[str, float]:
    attributes, unrelated = KINDS[kinds]
    async with AsyncExitStack() as stack:
        embedding = await stack.enter_async_context(open_embedding(settings.models))
        store = await stack.enter_async_context(open_store(settings.store))
        await ensure_collections(
            store, settings.store, embedding_name=embedding.name, dimension=embedding.dimension
        )
        records = MemoryRecords(store, settings.store.memory_collection, alone=True)
        writer = MemoryWriter(records, embedding.embed_passages, embedding.name)
        recall = MemoryRecall(records, settings.conversation, embedding.name)
        bench = Bench(recall, QueryBuilder(embedding))
        counts: Counter[str] = Counter()
        for person in people(number, Random(seed), attributes):
            for content in person.facts.values():
                await writer.write(person.owner, MemoryDraft(content))
            await _ask(bench, person, attributes, counts, shows=shows)
            await _ask_unrelated(bench, person, unrelated, counts, shows=shows)
        return {
            "right_same_language": counts["right_own"] / counts["asked_own"],
            "right_other_language": counts["right_other"] / counts["asked_other"],
            "wrongly_recalled": counts["wrong"] / counts["unrelated"],
            "recalled_per_question": counts["recalled"] / (counts["asked_own"] + counts["asked_other"]),
        }


async def _ask(
    bench: Bench, person: Person, attributes: Sequence[Attribute], counts: Counter[str], *, shows: bool
) -> None:
    for attribute in attributes:
        for chinese, questions in ((True, attribute.questions_zh), (False, attribute.questions_en)):
            kind = "own" if chinese == person.chinese else "other"
            for question in questions:
                recalled = await bench.recalled(question, person.owner)
                right = person.facts[attribute.name] in recalled
                counts[f"asked_{kind}"] += 1
                counts[f"right_{kind}"] += right
                counts["recalled"] += len(recalled)
                if shows and not right:
                    print(f"missed  {question} · {person.facts[attribute.name]}")


async def _ask_unrelated(
    bench: Bench, person: Person, questions: Sequence[str], counts: Counter[str], *, shows: bool
) -> None:
    for question in questions:
        recalled = await bench.recalled(question, person.owner)
        counts["unrelated"] += 1
        counts["wrong"] += bool(recalled)
        if shows and recalled:
            print(f"wrongly {question} · {recalled}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7, help="chooses the values of the facts")
    parser.add_argument("--show", action="store_true", help="list missed and wrongly recalled memories")
    parser.add_argument(
        "--kinds", choices=KINDS, default="first", help="of facts; nothing was fitted on the held-out ones"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        conversation = {"context_lines": False}  # which tell the name whatever is asked
        settings = load_settings(store={"data_dir": Path(folder)}, conversation=conversation)
        figures = asyncio.run(
            measure(settings, options.people, options.seed, options.kinds, shows=options.show)
        )
    for name, value in figures.items():
        print(f"{name:24}{value:.3f}")


if __name__ == "__main__":
    main()
