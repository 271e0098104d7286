"""F39: the server is killed at every step of a deletion; after the start the deletion is complete, or was
never begun."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, open_client
from tests.faults.world.echo_model import answer_to, open_echo_model, question
from tests.faults.world.server_world import World, open_world
from tests.faults.world.warm_start import open_warm

PLACES = ("erase.noted", "erase.traces", "erase.points", "erase.points:2", "erase.made")
KINDS = ("turn", "session", "document")


@dataclass(frozen=True)
class Things:
    """A session with two turns, and a document that alone contains its word."""

    session_id: str
    turn_ids: tuple[str, str]
    asked: tuple[str, str]
    document_id: str
    word: str


async def make_collection(client: Client, word: str) -> Things:
    asked = (question(f"{word}a", 5), question(f"{word}b", 5))
    first = (await client.ask(asked[0])).streamed
    second = (await client.ask(asked[1], session_id=first.session_id)).streamed
    await client.add_document(
        f"{word}.md", f"# Part\n\nThe {word} is green.\n\n# More\n\nThe {word} is not red."
    )
    listed = (await client.get("/documents?limit=1")).json["documents"]
    turn_ids = first.finished["turn_id"], second.finished["turn_id"]
    return Things(first.session_id, turn_ids, asked, listed[0]["document_id"], word)


async def document_state(client: Client, things: Things) -> str:
    """Return `gone`, `whole`, or a description of the half."""
    read = await client.get(f"/documents/{things.document_id}")
    search = await client.post("/search", {"question": f"What is {things.word}?", "top_n": 50})
    hits = [each for each in search.json["candidates"] if things.word in each["text"]]
    if read.status == 404:
        return "gone" if not hits else f"gone and found {len(hits)} times"
    if read.json["status"] == "ready" and read.json["chunk_count"] == len(hits):
        return "whole"
    return f"{read.json['status']} with {read.json['chunk_count']} chunks, found {len(hits)} times"


async def turn_state(client: Client, things: Things, number: int) -> str:
    read = await client.get(f"/turns/{things.turn_ids[number]}")
    if read.status == 404:
        return "gone"
    answer, status = read.json["answer"], read.json["status"]
    return (
        "whole"
        if (answer, status) == (answer_to(things.asked[number]), "completed")
        else f"{status} {answer!r}"
    )


async def session_state(client: Client, things: Things) -> str:
    turns = {await turn_state(client, things, number) for number in range(2)}
    read = await client.get(f"/sessions/{things.session_id}")
    states = turns | {"gone" if read.status == 404 else "whole"}
    return states.pop() if len(states) == 1 else f"session {read.status}, turns {sorted(turns)}"


async def state_of(client: Client, things: Things, kind: str) -> str:
    if kind == "document":
        return await document_state(client, things)
    return await (session_state(client, things) if kind == "session" else turn_state(client, things, 1))


def path_of(things: Things, kind: str) -> str:
    ids = {"turn": things.turn_ids[1], "session": things.session_id, "document": things.document_id}
    return f"/{kind}s/{ids[kind]}"


async def _trial(world: World, outcome: Outcome, kind: str, place: str, where: str) -> None:
    await world.start(WENMAI_FAILPOINT=place)
    async with open_client(world.url) as client:
        things = await make_collection(client, f"lamp{outcome.trials}x")
        reply = await client.delete(path_of(things, kind))
    if reply.status:  # this deletion has no such step
        outcome.count("not passed")
        await world.kill(with_store=True)
    else:
        code = await world.wait()
        outcome.expect(code == -signal.SIGKILL, f"{where}: the server ended with {code}")
    await world.start()
    outcome.took(world.ready_after_s)
    async with open_client(world.url) as client:
        for each in KINDS:
            state = await state_of(client, things, each)
            related = (
                {kind}
                | ({"turn"} if kind == "session" else set())
                | ({"session"} if kind == "turn" else set())
            )
            allowed = ("gone", "whole") if each in related else ("whole",)
            half = kind == "turn" and each == "session"  # one of whose turns may be gone
            outcome.expect(state in allowed or half, f"{where}: the {each} is {state}")
            if each == kind:
                outcome.count(state.split()[0])
    await world.kill(with_store=False)


async def kill_deletions(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), Random(seed)
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        # what is deleted must not be among what turns have cited
        only = {"OPENAI_BASE_URL": model.url, "RERANK_SCORE_THRESHOLD": "0.5"}
        world = await stack.enter_async_context(open_world(folder, warm, **only))
        for number in range(trials):
            kind, place = KINDS[number % len(KINDS)], choice.choice(PLACES)
            await _trial(world, outcome, kind, place, f"trial {number}, {kind} at {place}")
            outcome.trials += 1
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_deletions(trials, folder, seed))


FAULTS = (
    Fault(
        "F39 killed during a deletion",
        "after the start what was being deleted is gone, or whole; no document is ready and in no search",
        _run,
        short=3,
        long=100,
    ),
)
