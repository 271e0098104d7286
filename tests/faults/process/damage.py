"""F38: files of a store are damaged, and what it then serves is compared with what was acknowledged.

Half of the stores were closed in order, the others killed, with changes that are only in the journal and the
engine's log. A damage is reported when the start is refused, when the store says what is lost, or when a
request is refused; it is silent when something else is served than before, without a report.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from qdrant_client import models

from config.settings import StoreSettings
from core.errors import WenmaiError
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.store.collections import SPARSE, collection_specs
from tests.faults.outcome import Fault, Outcome
from tests.support.servers.app import make_settings, open_app, scripted

QUESTIONS = 8
DOCUMENTS = 6
_BLOCK = 4096
_ALL = 10_000
Contents = dict[str, Any]


async def build(folder: Path) -> list[Path]:
    """Stores of a real server in three states: closed, killed while idle, killed at work."""
    settings = make_settings(folder / "data", models={"llms": {"default": scripted("One answer.")}})
    left = [folder / name for name in ("closed", "killed_idle", "killed")]
    async with open_app(settings) as app:
        for number in range(DOCUMENTS):
            await app.add_text(f"n{number}.md", f"# Part {number}\n\n" + f"Lamp {number} is lit. " * 40)
        session = ""
        for number in range(QUESTIONS):
            body = {"session_id": session} if session and number % 3 else {}
            session = (await app.ask(f"Where is lamp {number}?", **body)).session_id
        await asyncio.sleep(3)  # what the engine flushes when nothing more comes
        _copy(settings.store.embedded, left[1])
        await app.ask("What is the last question?")
        await app.add_text("last.md", "# Last\n\nThe last lamp.")
        store = app.container.store
        assert isinstance(store, EdgeClient)
        os.kill(store.process_id, signal.SIGSTOP)  # the copy is what a kill would leave
        _copy(settings.store.embedded, left[2])
        os.kill(store.process_id, signal.SIGCONT)
    _copy(settings.store.embedded, left[0])
    return left


def _copy(source: Path, target: Path) -> None:
    """The engine's files are mostly holes."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


async def contents(store: EdgeClient) -> Contents:
    """Everything readable: points, the hits of filters, the nearest points. Raises WenmaiError."""
    read: Contents = {}
    for spec in collection_specs(StoreSettings()):
        records, _ = await store.scroll(spec.name, limit=_ALL, with_vectors=True)
        read[spec.name] = [record.model_dump() for record in records]
        for field in spec.indexes:
            values = {str(value) for record in records if (value := (record.payload or {}).get(field))}
            for value in sorted(values):
                condition = models.FieldCondition(key=field, match=models.MatchValue(value=value))
                count = await store.count(spec.name, models.Filter(must=[condition]))
                read[f"{spec.name} {field} {value}"] = count.count
        for name in (*spec.dense, SPARSE):
            read[f"{spec.name} {name}"] = await _nearest(store, spec.name, name, records)
    return read


async def _nearest(store: EdgeClient, collection: str, using: str, records: list[models.Record]) -> Any:
    vectors = [
        record.vector[using]
        for record in records
        if isinstance(record.vector, dict) and using in record.vector
    ]
    if not vectors:
        return []
    query = models.QueryRequest(query=vectors[0], using=using, limit=5, with_payload=True)
    (answer,) = await store.query_batch_points(collection, [query])
    return [(point.id, round(point.score, 4)) for point in answer.points]


class Damages:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._kinds: dict[str, Callable[[Path, list[Path]], None]] = {
            "flip": self._flip,
            "truncate": self._truncate,
            "zero": self._zero,
            "remove": lambda path, _: path.unlink(),
            "swap": self._swap,
            "remove the folder of": lambda path, _: shutil.rmtree(path.parent),
        }

    def make(self, folder: Path) -> str:
        """Damage a random file that is not empty. Returns a description."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        path = self._random.choice(files)
        kinds = list(self._kinds)[: 6 if path.parent != folder else 5]
        kind = self._random.choice(kinds)
        self._kinds[kind](path, files)
        return f"{kind} {path.relative_to(folder)}"

    def _flip(self, path: Path, _: list[Path]) -> None:
        at = self._place(path)
        with path.open("r+b") as file:
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            file.write(bytes([old ^ (1 << self._random.randrange(8))]))

    def _truncate(self, path: Path, _: list[Path]) -> None:
        os.truncate(path, self._random.randrange(path.stat().st_size))

    def _zero(self, path: Path, _: list[Path]) -> None:
        at = self._place(path)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes(min(_BLOCK, path.stat().st_size - at)))

    def _swap(self, path: Path, files: list[Path]) -> None:
        other = self._random.choice([each for each in files if each != path])
        aside = path.with_name("aside")
        path.rename(aside)
        other.rename(path)
        aside.rename(other)

    def _place(self, path: Path) -> int:
        """An offset at which something is written, if anything is."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            pieces = []
            for at in range(0, size, _BLOCK):
                with suppress(OSError):
                    if os.lseek(descriptor, at, os.SEEK_DATA) < at + _BLOCK:
                        piece = os.pread(descriptor, _BLOCK, at)
                        pieces += [at + n for n, byte in enumerate(piece) if byte]
        finally:
            os.close(descriptor)
        return self._random.choice(pieces) if pieces else self._random.randrange(size)


async def _verdict(folder: Path, whole: Contents) -> str:
    """`refused`, `reported`, `intact` or `silent`, with the message or the difference."""
    try:
        async with open_edge_client(folder) as store:
            if damage := (await store.condition()).damage:
                return f"reported {damage[0]}"
            read = await contents(store)
            if damage := (await store.condition()).damage:
                return f"reported {damage[0]}"
    except WenmaiError as error:
        return f"refused {error}"
    other = [name for name in whole.keys() | read.keys() if whole.get(name) != read.get(name)]
    return f"silent {sorted(other)[:3]}" if other else "intact"


async def damage_files(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, random = Outcome(), Random(seed)
    left = await build(folder)
    whole = {}
    for each in left:
        _copy(each, folder / "undamaged")
        async with open_edge_client(folder / "undamaged") as store:
            outcome.expect(not (await store.condition()).damage, f"{each.name}: damaged when nobody did it")
            whole[each] = await contents(store)
        shutil.rmtree(folder / "undamaged")
    for number in range(trials):
        each = random.choice((left[0], random.choice(left[1:])))
        trial = folder / f"trial{number}"
        _copy(each, trial)
        done = Damages(random).make(trial)
        verdict = await _verdict(trial, whole[each])
        shutil.rmtree(trial)
        outcome.trials += 1
        kind = f"{each.name} {verdict.split()[0]}"
        outcome.count(kind)
        outcome.expect(not verdict.startswith("silent"), f"trial {number}: {each.name}: {done}: {verdict}")
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(damage_files(trials, folder, seed))


FAULTS = (
    Fault(
        "F38 damaged files",
        "what is served is what was acknowledged, or it is said what is lost; nothing is lost in silence",
        _run,
        short=12,
        long=500,
    ),
)
