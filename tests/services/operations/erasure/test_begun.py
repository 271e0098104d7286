"""An interrupted erasure is finished: by the next start, or when the store is available again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from core.errors import StoreUnavailableError
from core.operations.erasure import ErasedKind
from services.adapters.edge import wire
from services.operations.erasure.erase import Begun, BegunErasures
from services.store.dialect import Point, VectorStore
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.server import running_server
from tests.support.stores.copies import without_holes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow("a server is started twice")


async def test_an_interrupted_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """After its note was written, and before it changed anything. Discriminates: a start that forgets it; a
    note that outlives its erasure."""
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        document_id = await app.add_text("tea.md", "# Tea\n\nSteep it for three minutes.")
        kept_id = await app.add_text("coffee.md", "# Coffee\n\nGrind it.")
        session_id = (await app.ask("How long?")).session_id
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        await app.client.post("/memories", json={"content": "I like tea"})
        for kind, name, owner in (
            (ErasedKind.DOCUMENT, document_id, None),
            (ErasedKind.SESSION, session_id, None),
            (ErasedKind.MEMORY, "local", "local"),
        ):
            with pytest.raises(StoreUnavailableError):
                async with begun.noted(Begun(kind, name, owner, full=False, with_answers=False)):
                    raise StoreUnavailableError("cut")
        assert len(await begun.pending()) == 3
        assert (await app.client.get(f"/documents/{document_id}")).status_code == 200
    async with open_app(settings) as app:
        assert (await app.client.get(f"/documents/{document_id}")).status_code == 404
        assert (await app.client.get(f"/sessions/{session_id}")).status_code == 404
        assert (await app.client.get("/memories")).json()["memories"] == []
        assert (await app.client.get(f"/documents/{kept_id}")).json()["status"] == "ready"
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        assert await begun.pending() == []


async def test_an_owners_erasure_interrupted_before_its_receipt_is_finished(
    tmp_path: Path,
) -> None:
    """All of the owner's data is deleted by then. Discriminates: a start that takes the name for a typing
    error, and fails."""
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        with pytest.raises(StoreUnavailableError):
            async with begun.noted(Begun(ErasedKind.OWNER, "local", None, full=True, with_answers=False)):
                raise StoreUnavailableError("cut")
    async with open_app(settings) as app:
        [receipt] = (await app.client.get("/admin/receipts")).json()["receipts"]
        assert (receipt["kind"], receipt["reason"]) == ("erasure", "recovery")
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        assert await begun.pending() == []


# The files that hold what was erased are rewritten after it, which takes minutes in a large store.


WORD = "zanzibar"
STOPS_WITHIN_S = 8.0


def holding(paths: Iterable[Path]) -> list[Path] | None:
    """Those with the word; None if a file disappears meanwhile, such as a copy that is thrown away."""
    with suppress(FileNotFoundError):
        return [path for path in paths if WORD.encode() in without_holes(path)]
    return None


def in_files(folder: Path) -> list[Path] | None:
    paths = folder.rglob("*")
    return holding(each for each in paths if each.is_file() and each.name != wire.DELETIONS_FILE)


def wait_for_word(folder: Path) -> list[Path]:
    wait_until(lambda: in_files(folder))
    return in_files(folder) or []


def wait_for_rewriting(folder: Path, held: list[Path]) -> None:
    """Wait until no file holds the word. All are searched only once those that held it no longer do."""
    wait_until(lambda: holding(filter(Path.exists, held)) == [] and in_files(folder) == [], 30)


def hold_rewriting(folder: Path) -> int:
    """Suspend the process that makes the copy as soon as it has begun. Returns its id."""

    def copying() -> list[psutil.Process]:
        return [each for each in psutil.Process().children() if wire.COPIES_FLAG in each.cmdline()]

    wait_until(lambda: any(folder.glob(f"{wire.COPIES}*/conversations")))
    [process] = copying()
    process.suspend()
    return process.pid


async def fill(store: VectorStore) -> None:
    """So many turns that their copy takes a moment."""
    [turn], _ = await store.scroll("conversations", limit=1)
    await store.upsert("conversations", [Point(id=n, vector={}, payload=turn.payload) for n in range(1_000)])


@pytest.mark.usefixtures("started_children")
async def test_a_stop_abandons_the_rewriting_of_files_and_the_next_start_completes_it(tmp_path: Path) -> None:
    """Discriminates: a stop that waits for it; a start that forgets it."""
    settings = make_settings(tmp_path)
    folder = tmp_path / "store"
    async with open_app(settings) as app:
        kept = (await app.ask("How far is it?")).session_id
        await fill(app.container.store)
        erased = (await app.ask(f"How far is {WORD}?")).session_id
        assert (await app.client.delete(f"/sessions/{erased}")).status_code == 200
        closing = asyncio.create_task(app.container.sessions.erasure.close())
        pid = await asyncio.to_thread(hold_rewriting, folder)
        began = time.monotonic()
        try:
            await asyncio.wait_for(closing, STOPS_WITHIN_S)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < STOPS_WITHIN_S
    held = wait_for_word(folder)
    assert not [name for name in os.listdir(folder) if name.startswith(wire.COPIES)]
    async with open_app(settings) as app:
        await asyncio.to_thread(wait_for_rewriting, folder, held)
        assert (await app.client.get(f"/sessions/{kept}")).status_code == 200


@pytest.mark.parametrize("place", ["erase.made", "compact.copied"])
async def test_the_rewriting_of_files_survives_a_kill(tmp_path: Path, place: str) -> None:
    """Discriminates: a note written only after the erasure counts as made; a recovery that rewrites only what
    it deletes itself, which is nothing."""
    folder = tmp_path / "store"
    quick = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
    with running_server(tmp_path, **quick, WENMAI_FAILPOINT=place) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            session = (await client.post("/sessions", json={"title": WORD})).json()["session_id"]
            with suppress(httpx.TransportError):
                await client.delete(f"/sessions/{session}", params={"proof": "full"})
        server.process.wait(timeout=20)
    held = wait_for_word(folder)
    with running_server(tmp_path, **quick):
        wait_for_rewriting(folder, held)
