"""F3: the process is killed while a document, or a new version of one, is ingested."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.server_world import StartFailedError, World, open_world
from tests.faults.world.warm_start import open_warm

TEXT = "\n\n".join(
    f"# Part {number}\n\nThe fee of tier {number} is {number} euros a month." for number in range(60)
)
CHANGED = TEXT.replace("euros", "dollars")
KILLED_IN_FIRST = (*(f"ingest.batch:{k}" for k in (1, 2, 3)), "ingest.published", "ingest.replaced")
KILLED_IN_CHANGE = ("ingest.removed",)


def _ingest(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(_ingest_trials(trials, folder, random.Random(seed)))


async def _ingest_trials(trials: int, folder: Path, choice: random.Random) -> Outcome:
    outcome = Outcome()
    async with open_warm() as warm:
        for trial in range(trials):
            where = choice.choice([*KILLED_IN_FIRST, *KILLED_IN_CHANGE])
            is_change = where in KILLED_IN_CHANGE or choice.random() < 0.5
            note = f"trial {trial}, {'a change' if is_change else 'the first version'} killed at {where}"
            async with open_world(folder / f"ingest{trial}", warm, CHUNK_TOKENS="32") as world:
                await _ingest_once(world, where, note, outcome, is_change=is_change)
            outcome.trials += 1
    return outcome


async def _ingest_once(world: World, where: str, note: str, outcome: Outcome, *, is_change: bool) -> None:
    """Killed, started again: an accepted document is ingested completely, and never found by half."""
    if is_change:
        await world.start()
        async with httpx.AsyncClient(base_url=world.url, timeout=30) as client:
            await _read_in(client, (await _upload(client, TEXT))["job_id"])
        await world.kill(with_store=False)
    await world.start(WENMAI_FAILPOINT=where)
    accepted = False
    async with httpx.AsyncClient(base_url=world.url, timeout=30) as client:
        with suppress(httpx.TransportError):  # killed before the reply
            await _upload(client, CHANGED if is_change else TEXT)
            accepted = True
    code = await world.wait()
    outcome.expect(code == -signal.SIGKILL, f"{note}: was not killed ({code})")
    try:
        await world.start()
    except StartFailedError as error:
        outcome.losses.append(f"{note}: does not start again: {error}")
        return
    outcome.took(world.ready_after_s)
    async with httpx.AsyncClient(base_url=world.url, timeout=30) as client:
        for _ in range(3):
            await _expect_whole_in_search(client, note, outcome, is_change=is_change)
        for job in (await client.get("/jobs")).json()["jobs"]:
            await _read_in(client, job["job_id"])
        await _expect_whole(client, note, outcome, must_be_new=accepted, is_change=is_change)


async def _upload(client: httpx.AsyncClient, text: str) -> dict[str, Any]:
    response = await client.post(
        "/documents", files={"file": ("fees.md", text.encode())}, data={"external_id": "fees"}
    )
    response.raise_for_status()
    body: dict[str, Any] = response.json()
    return body


async def _expect_whole_in_search(
    client: httpx.AsyncClient, note: str, outcome: Outcome, *, is_change: bool
) -> None:
    """While it is still being ingested: of a change at least one version."""
    hits = (await client.post("/search", json={"question": "the fee of tier 7"})).json()["candidates"]
    if is_change:
        outcome.expect(bool(hits), f"{note}: neither version is found")


async def _expect_whole(
    client: httpx.AsyncClient, note: str, outcome: Outcome, *, must_be_new: bool, is_change: bool
) -> None:
    """Accepted: the new version; otherwise that, or the previous one."""
    documents = (await client.get("/documents")).json()["documents"]
    words = json.dumps(documents)[:300]
    if not documents and not must_be_new and not is_change:
        return  # it was killed before any of it was stored
    outcome.expect([d["status"] for d in documents] == ["ready"], f"{note}: {words}")
    for document in documents:
        path = f"/documents/{document['document_id']}/chunks"
        listed = (await client.get(path, params={"limit": 500})).json()["chunks"]
        text = "\n".join(chunk["text"] for chunk in listed)
        number = document["chunk_count"]
        outcome.expect(len(listed) == number, f"{note}: {len(listed)} of {number} pieces")
        is_new = ("dollars" if is_change else "euros") in text
        outcome.expect(is_new or not must_be_new, f"{note}: an accepted version is lost")
        outcome.expect(not ("euros" in text and "dollars" in text), f"{note}: half of two versions")
    hits = (await client.post("/search", json={"question": "the fee of tier 7"})).json()["candidates"]
    versions = {candidate.get("version", "") for candidate in hits}
    outcome.expect(bool(hits) and len(versions) == 1, f"{note}: found of {len(versions)} versions")


async def _read_in(client: httpx.AsyncClient, job_id: str | None) -> None:
    """No job: the document already existed completely. The stream of a job ends with it."""
    if job_id:
        await client.get(f"/jobs/{job_id}/stream")


FAULTS = (
    Fault(
        "F3 killed during ingestion",
        "what was accepted is read in whole, and never found by half",
        _ingest,
        short=2,
        long=50,
    ),
)
