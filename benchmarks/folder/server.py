"""HTTP calls to the server under trial, as an operator and a user would make them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.folder.make import MadeFile

SOURCE = "office"
POLL_S = 0.5
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many files were ranked first by their question, and which were ranked below fifth or not at all."""

    first: int
    missed: tuple[str, ...]
    lost: tuple[str, ...]


def configuration(folder: Path) -> str:
    """The text of a wenmai.toml that follows the folder, syncing only on request."""
    return f'sync_cron = ""\nload_sample = false\n[sources.{SOURCE}]\nfolder = {json.dumps(str(folder))}\n'


async def sync(client: httpx.AsyncClient) -> dict[str, Any]:
    """Run one sync to its end and return its report."""
    (await client.post("/admin/sync", json={})).raise_for_status()
    while True:
        state = (await client.get("/admin/sync")).raise_for_status().json()
        if not state["running"]:
            report: dict[str, Any] = state["sources"][0]["last"]
            return report
        await asyncio.sleep(POLL_S)


async def find(client: httpx.AsyncClient, files: Sequence[MadeFile], *, asked: bool = False) -> Ranks:
    """Search for each file by its unique sentence; with `asked`, by a question for it, to which a thousand
    other sentences are nearly the answer."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(file: MadeFile) -> int | None:
        async with limit:
            reply = await client.post(
                "/search", json={"question": file.story.question if asked else file.story.phrase}
            )
        shown = reply.raise_for_status().json()["candidates"]
        names = [candidate["file_name"] for candidate in shown]
        name = Path(file.path).name
        return names.index(name) if name in names else None

    ranks = await asyncio.gather(*(ask(file) for file in files))
    missed = tuple(f.path for f, rank in zip(files, ranks, strict=True) if rank is not None and rank >= 5)
    lost = tuple(f.path for f, rank in zip(files, ranks, strict=True) if rank is None)
    return Ranks(sum(rank == 0 for rank in ranks), missed, lost)


async def documents(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """All documents of the source."""
    listed: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked: dict[str, str | int] = {
            "limit": 500,
            "source": SOURCE,
            **({"cursor": cursor} if cursor else {}),
        }
        page = (await client.get("/documents", params=asked)).raise_for_status().json()
        listed += page["documents"]
        cursor = page["next"]
        if cursor is None:
            return listed
