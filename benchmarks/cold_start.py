"""Time from starting the process until it would accept a question: with an empty store, and with stored
turns."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from api.wiring.assembly import open_maintenance
from benchmarks.processes import running_relay
from config.settings import load_settings
from core.conversation.sessions import Session
from core.conversation.turns import Turn, TurnStatus
from core.relevance.sparse import encode_document
from services.conversation.turns import TurnStore, TurnVectors
from services.store.clock import utc_now_us
from tests.support.servers.server import cold, running_server

TRIALS = 3
TURNS_A_SESSION = 100
DIMENSION = 384  # the bundled embedding's; the store refuses any other


def raw_start_s(stub_url: str) -> float:
    """Start-up of the raw relay in seconds, median of three."""
    return median(_relay_start_s(stub_url) for _ in range(TRIALS))


def empty_start_s() -> float:
    """Start-up in seconds with an empty store and no sample to load, median of three."""
    return median(_empty_start_s() for _ in range(TRIALS))


async def stored_start_s(turns: int) -> float:
    """Start-up in seconds with `turns` completed turns stored, median of three starts on one store."""
    with TemporaryDirectory() as folder:
        await _store_turns(Path(folder), turns)
        return median(_start_s(Path(folder)) for _ in range(TRIALS))


def _relay_start_s(stub_url: str) -> float:
    with running_relay(stub_url) as relay:
        return relay.ready_after_s


def _empty_start_s() -> float:
    with TemporaryDirectory() as folder:
        return _start_s(Path(folder))


def _start_s(data_dir: Path) -> float:
    with running_server(data_dir, cold, LOAD_SAMPLE="false") as server:
        return server.ready_after_s


async def _store_turns(data_dir: Path, turns: int) -> None:
    settings = load_settings(store={"data_dir": data_dir})
    async with open_maintenance(settings) as maintenance:
        await _fill(maintenance.conversations.turns, turns)


async def store_sessions(data_dir: Path, sessions: Mapping[str, int]) -> None:
    """Store sessions; `sessions` maps each id to its number of turns."""
    settings = load_settings(store={"data_dir": data_dir})
    async with open_maintenance(settings) as maintenance:
        for session_id, turns in sessions.items():
            await maintenance.sessions.put(Session(session_id, "local", "stored", 1, 1))
            await _fill(maintenance.conversations.turns, turns, turns, session_id)


async def _fill(
    store: TurnStore, turns: int, in_a_session: int = TURNS_A_SESSION, session_id: str = ""
) -> None:
    """Store sessions of `in_a_session` turns with all three vectors, so that nothing is left to embed."""
    chance = random.Random(7)
    now, named, parent = utc_now_us(), session_id, None
    for number in range(turns):
        if number % in_a_session == 0:
            session_id, parent = named or str(uuid.uuid4()), None
        turn = _turn(number, session_id, parent, now - (turns - number) * 1_000_000)
        vectors = TurnVectors(_unit(chance), _unit(chance), encode_document(turn.text))
        await store.put(turn, vectors)
        parent = turn.turn_id


def _turn(number: int, session_id: str, parent_turn_id: str | None, created_us: int) -> Turn:
    return Turn(
        turn_id=str(uuid.uuid4()),
        session_id=session_id,
        owner="local",
        question=f"What does paragraph {number} say about the store?",
        created_us=created_us,
        status=TurnStatus.COMPLETED,
        parent_turn_id=parent_turn_id,
        answer=f"Paragraph {number} says that every turn is kept with its parent. " * 6,
        seq=number,
    )


def _unit(chance: random.Random) -> list[float]:
    values = [chance.gauss(0, 1) for _ in range(DIMENSION)]
    length = sum(value * value for value in values) ** 0.5
    return [value / length for value in values]
