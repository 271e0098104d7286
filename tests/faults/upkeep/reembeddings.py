"""F3: the process is killed while a copy with another embedding is made, and while it becomes the store."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path
from typing import Any

from core.conversation.turns import Turn, TurnStatus
from services.conversation.turns import TurnVectors
from tests.faults.outcome import Fault, Outcome
from tests.services.conversation.stores import uid
from tests.support.models.hashing_embedding import HashingEmbedding
from tests.support.models.wider_embedding import WIDER, WiderEmbedding
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.commands import command

TURNS = 40
BATCHES = TURNS // 4
SESSION = uid(10**12)


def _reembed(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), random.Random(seed)
    for trial in range(trials):
        data = folder / f"reembed{trial}"
        asyncio.run(_write(data, range(TURNS)))
        places = [*(f"reembed.page:{k}" for k in range(1, BATCHES + 1)), *_SWITCHES * 3]
        where = choice.choice(places)
        _change(data, WIDER, where, f"trial {trial}, killed at {where}", outcome)
        asyncio.run(_expect_whole(data, WIDER, f"trial {trial}, killed at {where}", outcome))
        outcome.trials += 1
        if trial % 2 == 0:
            continue
        # and back, killed again: the old store is brought up to date, not rebuilt
        where = choice.choice(_SWITCHES)
        _change(data, HASHING, where, f"trial {trial}, back, killed at {where}", outcome)
        asyncio.run(_expect_whole(data, HASHING, f"trial {trial}, back, killed at {where}", outcome))
    return outcome


_SWITCHES = ["reembed.switch:1", "reembed.switch:2", "reembed.switch:3"]


def _change(data: Path, embedding: str, where: str, note: str, outcome: Outcome) -> None:
    """Killed during it, and run again to its end."""
    killed = _run(data, embedding, failpoint=where)
    begun = time.monotonic()
    rerun = _run(data, embedding)
    outcome.took(time.monotonic() - begun)
    outcome.expect(killed.returncode == -signal.SIGKILL, f"{note}: was not killed ({killed.returncode})")
    outcome.expect(rerun.returncode == 0, f"{note}: rerun exits {rerun.returncode}: {rerun.stderr[-300:]}")


def _run(data: Path, embedding: str, failpoint: str = "") -> Any:
    return command(
        "wenmai", "reembed", "--apply", DATA_DIR=str(data), EMBEDDING=embedding, WENMAI_FAILPOINT=failpoint
    )


async def _write(data: Path, numbers: range) -> None:
    async with open_app(make_settings(data)) as app:
        turns = [
            Turn(
                uid(number), SESSION, "local", f"question {number}", 1_700_000_000_000_000 + number,
                TurnStatus.COMPLETED, seq=number, answer=f"answer {number}",
            )
            for number in numbers
        ]  # fmt: skip
        store = app.container.conversations.turns
        await store.put_many([(turn, TurnVectors()) for turn in turns])
        await app.container.conversations.index_missing()


async def _expect_whole(data: Path, embedding: str, note: str, outcome: Outcome) -> None:
    """Every turn exists once, with the vectors of this embedding, in a store on which a server starts."""
    model = WiderEmbedding() if embedding == WIDER else HashingEmbedding()
    async with open_app(make_settings(data, models={"embedding": embedding})) as app:
        store = app.container.store
        records, _ = await store.scroll("conversations", limit=1_000, with_payload=True, with_vectors=True)
    outcome.expect(
        {str(record.id) for record in records} == {uid(number) for number in range(TURNS)},
        f"{note}: {len(records)} turns, not {TURNS}",
    )
    for record in records:
        stored: Any = record.vector or {}
        expected = model.get_query_embedding((record.payload or {})["user_query"])
        in_store = stored.get("question", [0.0] * len(expected))
        near = (
            len(in_store) == len(expected)
            and max(abs(a - b) for a, b in zip(in_store, expected, strict=True)) < 1e-5
        )
        outcome.expect(near and "turn" in stored, f"{note}: the vectors of {record.id} are not the model's")


FAULTS = (
    Fault(
        "F3 killed during re-embedding",
        "run again it finishes; every turn once, with the new vectors, and back",
        _reembed,
        short=1,
        long=20,
    ),
)
