"""F3: the process is killed during expiry, and during the repair of parents."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qdrant_client import models

from api.wiring.assembly import open_maintenance
from core.conversation.turns import Turn, TurnStatus
from core.operations.expiry import DAY_US
from services.conversation.turns import TurnStore, TurnVectors
from services.operations.repair.stored import MOVE_BATCH
from services.operations.retention.expiry import CHUNK
from tests.faults.outcome import Fault, Outcome
from tests.services.conversation.stores import uid
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.servers.app import HASHING, make_settings
from tests.support.servers.commands import command

LIVE = 20
REPAIR = ("--apply", "--no-embed")
RECENT_S = 3_600
SESSION = uid(10**12)


def _command(
    script: str, folder: Path, *arguments: str, failpoint: str = ""
) -> subprocess.CompletedProcess[str]:
    return command(script, *arguments, DATA_DIR=str(folder), EMBEDDING=HASHING, WENMAI_FAILPOINT=failpoint)


def _expire(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), random.Random(seed)
    for trial in range(trials):
        data = folder / f"expiry{trial}"
        old, live = range(choice.randint(CHUNK + 1, 3 * CHUNK)), range(10**6, 10**6 + LIVE)
        asyncio.run(_write_turns(data, old, live))
        chunks = -(-len(old) // CHUNK)
        where = choice.choice(["expiry.traces", *(f"expiry.chunk:{k}" for k in range(1, chunks + 1))])
        killed = _command("cleanup_expired", data, "--apply", failpoint=where)
        begun = time.monotonic()
        rerun = _command("cleanup_expired", data, "--apply", "--json")
        outcome.took(time.monotonic() - begun)
        left = asyncio.run(_turn_ids(data))
        note = f"trial {trial}, killed at {where}"
        outcome.expect(killed.returncode == -signal.SIGKILL, f"{note}: was not killed ({killed.returncode})")
        outcome.expect(
            rerun.returncode == 0, f"{note}: rerun exits {rerun.returncode}: {rerun.stderr[-300:]}"
        )
        outcome.expect(
            left == {uid(number) for number in live}, f"{note}: {len(left)} turns left, not {LIVE}"
        )
        outcome.trials += 1
    return outcome


async def _write_turns(folder: Path, old: Iterable[int], live: Iterable[int]) -> None:
    now = time.time_ns() // 1_000
    async with open_maintenance(make_settings(folder)) as maintenance:
        turns = maintenance.conversations.turns
        await _put(turns, [_turn(number, now - 40 * DAY_US + number) for number in old])
        await _put(turns, [_turn(number, now - RECENT_S * 1_000_000 + number) for number in live])


async def _put(turns: TurnStore, written: list[Turn]) -> None:
    for start in range(0, len(written), CHUNK):
        await turns.put_many([(turn, TurnVectors()) for turn in written[start : start + CHUNK]])


def _turn(number: int, created_us: int) -> Turn:
    return Turn(
        uid(number), SESSION, "local", f"question {number}", created_us, TurnStatus.COMPLETED, seq=number
    )


async def _turn_ids(folder: Path) -> set[str]:
    async with open_maintenance(make_settings(folder)) as maintenance:
        return {
            str(record.id)
            async for record in maintenance.conversations.turns.scroll(None, with_payload=False)
        }


def _repair(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), random.Random(seed)
    for trial in range(trials):
        data, number = folder / f"repair{trial}", choice.randint(5, 40)
        before = asyncio.run(_write_legacy(data, number))
        stored = asyncio.run(_points(data))
        batches = -(-number // MOVE_BATCH)
        places = [f"backfill.{name}:{choice.randint(1, batches)}" for name in ("begun", "copied")]
        where = choice.choice([*places, f"backfill.turn:{choice.randint(1, number - 1)}"])
        killed = _command("backfill_parent_turns", data, *REPAIR, failpoint=where)
        begun = time.monotonic()
        rerun = _command("backfill_parent_turns", data, *REPAIR)
        outcome.took(time.monotonic() - begun)
        note = f"trial {trial}, killed at {where} of {number}"
        outcome.expect(killed.returncode == -signal.SIGKILL, f"{note}: was not killed ({killed.returncode})")
        outcome.expect(
            rerun.returncode == 0, f"{note}: rerun exits {rerun.returncode}: {rerun.stderr[-300:]}"
        )
        for broken in asyncio.run(_unrepaired(data, before)):
            outcome.losses.append(f"{note}: {broken}")
        _restore(data, stored, outcome, note)
        outcome.trials += 1
    return outcome


def _restore(folder: Path, before: dict[str, models.Record], outcome: Outcome, note: str) -> None:
    """The backup made by the first run, which was killed, still has everything unchanged."""
    archives = sorted((folder / "backups").glob("*.zip"))
    outcome.expect(bool(archives), f"{note}: no backup")
    (folder / "store").rename(folder / "repaired")
    restored = _command("wenmai", folder, "restore", str(archives[0]), "--apply")
    output = f"{restored.returncode} {restored.stderr[-300:]}{restored.stdout[-300:]}"
    outcome.expect(restored.returncode == 0, f"{note}, restored: {output}")
    outcome.expect(asyncio.run(_points(folder)) == before, f"{note}, restored: not as it was")


async def _points(folder: Path) -> dict[str, models.Record]:
    """Every turn with payload and vectors."""
    async with open_maintenance(make_settings(folder)) as maintenance:
        store = maintenance.conversations.turns._store
        records, _ = await store.scroll("conversations", limit=1_000, with_vectors=True)
    return {str(record.id): record for record in records}


async def _write_legacy(folder: Path, number: int) -> dict[str, list[float]]:
    """Write turns like the first version: numbered points, no ids, no parents. Returns question → its
    vector."""
    choice = random.Random(number)
    vectors = {f"question {n}": _unit([choice.random() for _ in range(DIMENSION)]) for n in range(number)}
    points = [
        models.PointStruct(
            id=n + 1,
            vector={"turn": vectors[f"question {n}"]},
            payload={
                "session_id": SESSION, "user_query": f"question {n}", "assistant_response": "answer",
                "timestamp": f"2026-11-01T10:{n // 60:02}:{n % 60:02}Z", "context_docs": [], "token_count": 1,
            },
        )
        for n in range(number)
    ]  # fmt: skip
    async with open_maintenance(make_settings(folder)) as maintenance:
        await maintenance.conversations.turns._store.upsert("conversations", points)
    return vectors


def _unit(vector: list[float]) -> list[float]:
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector]


async def _unrepaired(folder: Path, vectors: dict[str, list[float]]) -> list[str]:
    """What is still wrong after the repair was run again: turns, chain, vectors."""
    async with open_maintenance(make_settings(folder)) as maintenance:
        store = maintenance.conversations.turns._store
        records, _ = await store.scroll("conversations", limit=1_000, with_vectors=True)
        plan = await maintenance.backfill.plan()
    planned = len(list(plan.changes))
    broken = [f"{planned} changes are planned after the rerun"] if planned else []
    stored = sorted(records, key=lambda record: (record.payload or {})["created_us"])
    if [(record.payload or {})["user_query"] for record in stored] != list(vectors):
        broken.append("the questions are not the ones that were stored, once each and in order")
    parents = [(record.payload or {}).get("parent_turn_id") for record in stored]
    if parents != [None, *(str(record.id) for record in stored[:-1])]:
        broken.append("the chain of parents is not the order of time")
    for record in stored:
        results: Any = record.vector or {}
        expected = vectors.get((record.payload or {})["user_query"], [])
        if max((abs(a - b) for a, b in zip(results["turn"], expected, strict=True)), default=1.0) > 1e-6:
            broken.append(f"the vector of point {record.id} has changed")
    return broken


FAULTS = (
    Fault(
        "F3 killed during expiry", "the next run finishes, no live turn deleted", _expire, short=1, long=50
    ),
    Fault(
        "F3 killed during repair",
        "the next run finishes, vectors unchanged; its backup restored, everything is as it was",
        _repair,
        short=1,
        long=50,
    ),
)
