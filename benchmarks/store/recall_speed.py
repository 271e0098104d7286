"""History recall in a long session, by stage, on the embedded store; vectors are random.

`python -m benchmarks.store.recall_speed` stores 10,000 turns in sessions of different shapes and prints p50
and p99 of the stages before every question, except embedding it: finding the branch, reading the recent
history, recalling the relevant history. A turn is stored between questions, as in real use.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import uvloop

from api.wiring.assembly import open_container
from config.settings import load_settings
from core.conversation.turns import Turn, TurnStatus
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_document, encode_query
from scripts.evaluation.figures import quantile
from services.conversation.turns import HISTORY_CACHE_S, TurnStore, TurnVectors
from services.conversation_manager import ConversationManager

OWNER = "local"
DIMENSION = 384
WORDS = 3_000
BATCH = 500


@dataclass(frozen=True, slots=True)
class Shape:
    """Every `fork_every` turns, the next one follows the turn `back` places before; 0 means no forks."""

    name: str
    fork_every: int
    back: int


SHAPES = (
    Shape("one line", 0, 0),
    Shape("one answer in 20 regenerated", 20, 2),
    Shape("half of it on other branches", 2_500, 1_250),
)


class Writer:
    """Generates turns with random words and vectors."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._vectors = np.random.default_rng(seed)

    def unit(self) -> list[float]:
        vector = self._vectors.standard_normal(DIMENSION)
        return [float(value) for value in vector / np.linalg.norm(vector)]

    def text(self, words: int) -> str:
        """Return random words; few of them are frequent, as in any language."""
        chosen = (min(int(self._random.paretovariate(0.8)), WORDS) for _ in range(words))
        return " ".join(f"word{number}" for number in chosen)

    def turn(self, session_id: str, seq: int, parent: str | None) -> tuple[Turn, TurnVectors]:
        turn = Turn(
            turn_id=str(uuid.UUID(int=self._random.getrandbits(128))),
            session_id=session_id,
            owner=OWNER,
            question=self.text(15),
            answer=self.text(60),
            created_us=1_700_000_000_000_000 + seq * 1_000_000,
            status=TurnStatus.COMPLETED,
            parent_turn_id=parent,
            seq=seq,
        )
        return turn, TurnVectors(self.unit(), self.unit(), encode_document(turn.text))

    def query(self) -> Query:
        text = self.text(8)
        return Query(text, (QueryForm(text, self.unit(), encode_query(text)),))


async def fill(manager: ConversationManager, writer: Writer, shape: Shape, turns: int) -> tuple[str, str]:
    """Store a session; returns its id and that of its last turn."""
    session_id = str(uuid.uuid4())
    ids: list[str] = []
    batch: list[tuple[Turn, TurnVectors]] = []
    for seq in range(turns):
        forks = shape.fork_every and seq and seq % shape.fork_every == 0
        parent = ids[-shape.back if forks else -1] if ids else None
        batch.append(writer.turn(session_id, seq, parent))
        ids.append(batch[-1][0].turn_id)
        if len(batch) == BATCH or seq == turns - 1:
            await manager.turns.put_many(batch)
            batch = []
    return session_id, ids[-1]


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds per question; `cold` is the branch's first read."""

    cold: float
    branch: list[float]
    recent: list[float]
    relevant: list[float]

    def lines(self, name: str) -> list[str]:
        stages = {"branch": self.branch, "recent": self.recent, "relevant": self.relevant}
        stages["in all"] = [sum(each) for each in zip(*stages.values(), strict=True)]
        rows = [f"| {name} | {stage} | {_p50_p99(taken)} |" for stage, taken in stages.items()]
        return [f"| {name} | first read | {self.cold:.1f} | |", *rows]


async def measure(
    manager: ConversationManager, writer: Writer, session_id: str, leaf: str, questions: int
) -> Timings:
    manager.turns.forget_trees()
    started = time.perf_counter()
    seq = (await manager.find_branch(session_id, OWNER)).next_seq
    timings = Timings((time.perf_counter() - started) * 1000, [], [], [])
    for at in range(questions):
        query, marks = writer.query(), [time.perf_counter()]
        branch = await manager.find_branch(session_id, OWNER, leaf)
        marks.append(time.perf_counter())
        recent = await manager.get_recent_history(branch)
        marks.append(time.perf_counter())
        await manager.retrieve_relevant_history(query, branch, recent, OWNER)
        marks.append(time.perf_counter())
        for taken, begin, end in zip(
            (timings.branch, timings.recent, timings.relevant), marks[:-1], marks[1:], strict=True
        ):
            taken.append((end - begin) * 1000)
        turn, vectors = writer.turn(session_id, seq + at, leaf)
        await manager.turns.put(replace(turn, status=TurnStatus.RUNNING), TurnVectors())
        await manager.turns.put(turn, vectors)
        leaf = turn.turn_id
    return timings


def _p50_p99(taken: Sequence[float]) -> str:
    return f"{statistics.median(taken):.1f} | {quantile(taken, 0.99):.1f}"


async def run(turns: int, questions: int) -> list[str]:
    lines: list[str] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="wenmai-recall-") as folder:
            settings = load_settings(store={"data_dir": Path(folder)}, knowledge={"load_sample": False})
            async with open_container(settings) as container:
                names = settings.store
                turn_store = TurnStore(container.store, names.conversation_collection, HISTORY_CACHE_S)
                manager = ConversationManager(turn_store, container.embedding, settings.conversation)
                writer = Writer(7)
                session_id, leaf = await fill(manager, writer, shape, turns)
                lines += (await measure(manager, writer, session_id, leaf, questions)).lines(shape.name)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store.recall_speed", description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=300)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the server does
        lines = runner.run(run(arguments.turns, arguments.questions))
    print(f"{arguments.turns} turns, {arguments.questions} questions, milliseconds")
    print("| session | stage | p50 | p99 |")
    print("| --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
