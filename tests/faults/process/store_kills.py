"""F40: the store's process is killed while the server lives: during a turn, an upload, a deletion, a title, a
summary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.faults.outcome import Fault, Outcome
from tests.faults.process.deletions import Things, document_state, make_collection, session_state
from tests.faults.world.client import Client, Reply, open_client
from tests.faults.world.echo_model import SUMMARY, answer_to, open_echo_model, question
from tests.faults.world.server_world import World, open_world
from tests.faults.world.warm_start import open_warm

SETTLED_S = 15.0
_BACK_S, _REPEAT_S = 60.0, 0.05
_LONG_AND_SHORT = (("a", 200), ("b", 5), ("c", 5))
_EARLY_SUMMARIES = {"COMPRESS_AFTER_TOKENS": "200", "MAX_RECENT_TURNS": "1"}
Check = Callable[[Client], Awaitable[str]]
"""What is still half, "" when nothing is."""


class StoreKills:
    def __init__(self, world: World, outcome: Outcome, random: Random) -> None:
        self._world = world
        self._outcome = outcome
        self._random = random
        self._kinds = {
            "turn": self._turn,
            "upload": self._upload,
            "deletion": self._deletion,
            "title": self._title,
            "summary": self._summary,
        }

    async def trial(self, number: int) -> None:
        kind = sorted(self._kinds)[number % len(self._kinds)]
        where = f"trial {number}, {kind}"
        async with open_client(self._world.url) as client:
            things = await make_collection(client, f"lamp{number}x")
            check = await self._kinds[kind](client, things, number)
            await self._settled(client, check, where)

    async def _settled(self, client: Client, check: Check, where: str) -> None:
        await _is_back(client)
        back = time.monotonic()
        while half := await check(client):
            if time.monotonic() - back > SETTLED_S:
                self._outcome.losses.append(f"{where}: after {SETTLED_S} s {half}")
                break
            await asyncio.sleep(0.2)
        self._outcome.took(time.monotonic() - back)

    async def _killed_during(self, work: Awaitable[Reply], most_s: float) -> Reply:
        """Kill it once, or repeatedly until the work has ended: then the store is unreachable at the
        write."""
        task, again = asyncio.ensure_future(work), self._random.random() < 0.5
        await asyncio.sleep(self._random.uniform(0, most_s))
        self._world.kill_store()
        while again and not (await asyncio.wait([task], timeout=_REPEAT_S))[0]:
            self._world.kill_store()
        return await task

    async def _turn(self, client: Client, things: Things, number: int) -> Check:
        asked = question(f"turn{number}", self._random.randint(5, 60), 10)
        turn_id = f"{number:08x}-0000-4000-8000-{self._random.getrandbits(48):012x}"
        reply = await self._killed_during(
            client.ask(asked, turn_id=turn_id, session_id=things.session_id), 0.8
        )
        got_whole = reply.streamed.answer == answer_to(asked)
        self._outcome.count("turns heard whole" if got_whole else "turns cut")
        if got_whole and not reply.acknowledged:
            self._outcome.count("of them not stored at first")

        async def check(client: Client) -> str:
            read = await client.get(f"/turns/{turn_id}")
            if read.status == 404:
                return f"{turn_id} is lost" if got_whole else ""
            status, answer = read.json["status"], read.json["answer"]
            if status == "running" or (got_whole and (status, answer) != ("completed", answer_to(asked))):
                return f"{turn_id}, of which the reader had {reply.streamed.answer!r}, is {status} {answer!r}"
            return ""

        return check

    async def _upload(self, client: Client, things: Things, number: int) -> Check:
        word = f"wick{number}x"
        text = f"# Part\n\nThe {word} is long.\n" * 40
        files = {"file": (f"{word}.md", text.encode())}

        async def upload() -> Reply:
            async with httpx.AsyncClient(base_url=self._world.url, timeout=60, trust_env=False) as http:
                answer = await http.post("/documents", files=files)
                return Reply(answer.status_code, answer.text, cut=False, took_s=0)

        reply = await self._killed_during(upload(), 0.4)
        self._outcome.count(f"uploads answered {reply.status}")

        async def check(client: Client) -> str:
            listed = (await client.get("/documents?limit=20")).json["documents"]
            for each in listed:
                if each["file_name"] != f"{word}.md":
                    continue
                if each["status"] == "ingesting":
                    return f"{word} is being read in"
                search = await client.post("/search", {"question": f"What is {word}?", "top_n": 50})
                hits = sum(word in hit["text"] for hit in search.json["candidates"])
                if (each["status"] == "ready") != bool(hits):
                    return f"{word} is {each['status']} and found {hits} times"
                return ""
            return f"{word} was accepted and is lost" if reply.status == 201 else ""

        return check

    async def _deletion(self, client: Client, things: Things, number: int) -> Check:
        kind = self._random.choice(("sessions", "documents"))
        name = things.session_id if kind == "sessions" else things.document_id
        reply = await self._killed_during(client.delete(f"/{kind}/{name}"), 0.3)
        self._outcome.count(f"deletions answered {reply.status}")

        async def check(client: Client) -> str:
            state = await (session_state if kind == "sessions" else document_state)(client, things)
            allowed = ("gone",) if reply.status == 200 else ("gone", "whole")
            return "" if state in allowed else f"{kind} {name} is {state}"

        return check

    async def _title(self, client: Client, things: Things, number: int) -> Check:
        before = (await client.get(f"/sessions/{things.session_id}")).json["title"]

        async def rename() -> Reply:
            async with httpx.AsyncClient(base_url=self._world.url, timeout=60, trust_env=False) as http:
                answer = await http.patch(f"/sessions/{things.session_id}", json={"title": "Named"})
                return Reply(answer.status_code, answer.text, cut=False, took_s=0)

        reply = await self._killed_during(rename(), 0.05)

        async def check(client: Client) -> str:
            title = (await client.get(f"/sessions/{things.session_id}")).json["title"]
            allowed = ("Named",) if reply.status == 200 else ("Named", before)
            return "" if title in allowed else f"the title is {title!r}"

        return check

    async def _summary(self, client: Client, things: Things, number: int) -> Check:
        """Of a long turn, begun when another has followed it; a summary that was cut off is made after the
        next."""
        long, second, third = (question(f"summary{number}{at}", words) for at, words in _LONG_AND_SHORT)
        session_id = (await client.ask(long)).streamed.session_id
        await self._killed_during(client.ask(second, session_id=session_id), 0.5)

        async def check(client: Client) -> str:
            turns = await _turns_of(client, session_id)
            if running := [turn["turn_id"] for turn in turns if turn["status"] == "running"]:
                return f"{running} of {session_id} are running"
            summaries = [turn["summary"]["text"] for turn in turns if turn.get("summary")]
            if not summaries and third not in [turn["question"] for turn in turns]:
                self._outcome.count("summaries made after another turn")
                await client.ask(third, session_id=session_id)
            return "" if summaries == [SUMMARY] else f"the summaries of {session_id} are {summaries}"

        return check


async def _turns_of(client: Client, session_id: str) -> list[dict[str, Any]]:
    tree = await client.get(f"/sessions/{session_id}/tree")
    return [(await client.get(f"/turns/{node['turn_id']}")).json for node in tree.json["turns"]]


async def _is_back(client: Client) -> None:
    end = time.monotonic() + _BACK_S
    while time.monotonic() < end:
        if (await client.get("/health/ready")).status == 200:
            return
        await asyncio.sleep(0.1)


async def kill_the_store(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        only = {"OPENAI_BASE_URL": model.url, "RERANK_SCORE_THRESHOLD": "0.5", **_EARLY_SUMMARIES}
        world = await stack.enter_async_context(open_world(folder, warm, **only))
        await world.start()
        kills = StoreKills(world, outcome, Random(seed))
        for number in range(trials):
            await kills.trial(number)
            outcome.trials += 1
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_the_store(trials, folder, seed))


FAULTS = (
    Fault(
        "F40 the store's process killed, the server alive",
        "15 s after it is back nothing is running or half; every answer that reached its end is there",
        _run,
        short=5,
        long=50,
    ),
)
