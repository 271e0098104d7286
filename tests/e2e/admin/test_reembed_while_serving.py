"""Another embedding is prepared while people ask, used from the next start, and abandoned again without loss.

Discriminates: a copy that is made once and never caught up (turns asked meanwhile are missing); a switch back
that takes the old store as it was left; a start that does not look for a prepared copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from api.admin.reembedding import ReembedState, StoreReembedding
from api.wiring.assembly import open_container
from config.settings import Settings
from core.errors import BadRequestError, ConflictError, StartRefusedError
from core.operations.reports import ReceiptKind
from routes.admin.store import router
from routes.errors import install_error_handlers
from scripts.commands import reembed
from scripts.commands.maintenance import CommandError
from services.store.clock import Activity
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import nearest
from tests.support.models.wider_embedding import SLOW, WIDER, WIDER_DIMENSION, WiderEmbedding
from tests.support.servers.app import HASHING, App, make_settings, open_app
from tests.support.servers.commands import options_of
from tests.support.stores.reembedding import make_job, started
from tests.support.waiting import until

QUESTION = "How many days of leave are there?"
TURNS = 12


async def ended(job: StoreReembedding) -> ReembedState:
    await until(lambda: job.state().status != "running")
    return job.state()


def folders(data_dir: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in data_dir.glob("store*"))


async def prepare(app: App, folder: Path, embedding: str = WIDER) -> ReembedState:
    job = make_job(app, folder)
    job.start(embedding)
    return await ended(job)


async def questions(app: App, session_id: str) -> set[str]:
    turns = (await app.client.get(f"/sessions/{session_id}/turns")).json()["turns"]
    return {turn["question"] for turn in turns}


@pytest.mark.full("writes a whole store anew")
async def test_turns_asked_during_and_after_the_copy_exist_after_the_switch_and_after_switching_back(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as app:
        await app.add_text("leave.md", "# Leave\n\nThere are five days of leave a year.")
        session = (await app.ask("Question 0")).session_id
        for number in range(1, TURNS):
            await app.ask(f"Question {number}", session_id=session)
        job = make_job(app, tmp_path)
        job.start(SLOW)
        await app.ask("Asked while it is made", session_id=session)
        assert job.state().status == "running"
        state = await ended(job)
        assert (state.status, state.dimension, state.error) == ("prepared", WIDER_DIMENSION, "")
        assert state.done >= TURNS
        await app.ask("Asked after it was made", session_id=session)
    asked = {*(f"Question {number}" for number in range(TURNS))}
    asked |= {"Asked while it is made", "Asked after it was made"}

    async with started(tmp_path, SLOW) as app:
        assert await questions(app, session) == asked
        hits = (await app.client.post("/search", json={"question": QUESTION})).json()
        assert "leave.md" in str(hits)
        vector = WiderEmbedding().get_query_embedding("Asked after it was made")
        best = await nearest(app.container.store, vector, "question", 1, collection="conversations")
        assert best[0].score > 0.99
        await app.ask("Asked after the switch", session_id=session)
        receipts = await ReceiptStore(app.container.store, "operations").newest(kind=ReceiptKind.REEMBEDDING)
        assert [receipt.details["dimension"] for receipt in receipts] == [str(WIDER_DIMENSION)] * 2
        assert receipts[1].reason == "request"

    async with started(tmp_path, HASHING) as app:
        assert await questions(app, session) == asked | {"Asked after the switch"}
        assert (await app.ask(QUESTION, session_id=session)).answer
    assert folders(tmp_path) == ["store", "store.before"]


@pytest.mark.full("writes a whole store anew")
async def test_what_is_erased_after_the_copy_was_made_does_not_come_back_with_it(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        session = (await app.ask("To be erased")).session_id
        remaining = (await app.ask("To be kept")).session_id
        assert (await prepare(app, tmp_path)).status == "prepared"
        assert (await app.client.delete(f"/sessions/{session}")).status_code in (200, 204)
    async with started(tmp_path, WIDER) as app:
        assert (await app.client.get(f"/sessions/{session}/turns")).status_code == 404
        assert await questions(app, remaining) == {"To be kept"}
        assert (await app.client.delete(f"/sessions/{remaining}")).status_code in (200, 204)
    async with started(tmp_path) as app:
        assert await app.container.conversations.turns.count() == 0


@pytest.mark.full("writes a whole store anew")
async def test_without_a_prepared_copy_the_start_is_refused_and_names_the_command(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        await app.ask(QUESTION)
        job = make_job(app, tmp_path)
        job.start(SLOW)
        await asyncio.sleep(0.02)  # it is running
        assert (await job.cancel()).status == "cancelled"
    with pytest.raises(StartRefusedError, match="wenmai reembed"):
        async with started(tmp_path, SLOW):
            pass
    async with started(tmp_path) as app:
        assert await app.container.conversations.turns.count() == 1
        assert (await prepare(app, tmp_path, SLOW)).status == "prepared"


@pytest.mark.full("writes a whole store anew")
async def test_the_copy_pauses_while_answers_are_written(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        for number in range(8):
            await app.ask(f"Question {number}")
        activity = Activity()
        job = make_job(app, tmp_path, activity)
        with activity.busy():
            job.start(WIDER)
            await asyncio.sleep(1)  # time to embed everything
            assert (job.state().status, job.state().embedded) == ("running", 0)
        assert (await ended(job)).status == "prepared"


async def test_only_one_copy_runs_and_an_unknown_embedding_is_refused(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        await app.ask(QUESTION)
        job = make_job(app, tmp_path)
        with pytest.raises(BadRequestError, match="embedding"):
            job.start("os:system")
        assert (await job.plan(HASHING)).needed is False
        job.start(SLOW)
        with pytest.raises(ConflictError):
            job.start(WIDER)
        await job.cancel()
        job.start("llama_index:tests.support.nowhere:Nothing")
        state = await ended(job)
        assert (state.status, "nowhere" in state.error) == ("failed", True)
        job.start(HASHING)
        assert (await ended(job)).status == "idle"


async def test_after_a_restart_the_state_is_the_copys_and_says_how_to_continue(tmp_path: Path) -> None:
    """Discriminates: `idle` beside a copy that was interrupted, or is complete."""
    async with started(tmp_path) as app:
        await app.ask(QUESTION)
        job = make_job(app, tmp_path)
        assert job.state().status == "idle"
        job.start(SLOW)
        await until(lambda: job.state().round > 0)
        await job.cancel()
        async with routed(app, tmp_path) as client:
            after = (await client.get("/admin/reembed")).json()
            assert (after["status"], after["dimension"]) == ("interrupted", WIDER_DIMENSION)
            assert "POST /admin/reembed" in after["error"]
            assert after["embedding"] == job.state().embedding
            await client.post("/admin/reembed?dry_run=false", json={"embedding": SLOW})
            async with asyncio.timeout(20):
                while (await client.get("/admin/reembed")).json()["status"] == "running":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # between two requests
        after = make_job(app, tmp_path).state()
        assert (after.status, after.embedding, after.error) == ("prepared", job.state().embedding, "")


@dataclass(frozen=True)
class _Container:
    """What these routes request from a container."""

    settings: Settings
    reembedding: StoreReembedding


def routed_app(app: App, folder: Path) -> FastAPI:
    served = FastAPI()
    served.include_router(router)
    install_error_handlers(served, ())
    served.state.container = _Container(app.container.settings, make_job(app, folder))

    @served.get("/admin/stats")
    async def stats() -> dict[str, object]:
        stored = {"turns": 1, "documents": 0, "sessions": 1}
        return {
            "stored": stored,
            "chunks_made_for": None,
            "bytes_on_disk": None,
            "running_turns": 0,
            "tasks": 1,
        }

    return served


@asynccontextmanager
async def routed(app: App, folder: Path, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(routed_app(app, folder))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@asynccontextmanager
async def listening(served: FastAPI) -> AsyncIterator[str]:
    """Return its address on loopback."""
    server = uvicorn.Server(uvicorn.Config(served, port=0, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.mark.full("writes a whole store anew")
async def test_the_command_has_the_running_server_make_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started(tmp_path) as app, listening(routed_app(app, tmp_path)) as url:
        await app.ask(QUESTION)
        for arguments, text in (
            (["--embedding", WIDER], "add --apply"),
            (["--embedding", WIDER, "--apply"], f"EMBEDDING={WIDER}"),
            (["--embedding", HASHING, "--apply"], "Nothing to do"),
            (["--cancel"], "re-embedding is prepared"),
        ):
            options = options_of(reembed.reembed, [*arguments, "--url", url])
            assert await reembed._reembed(app.container.settings, options) == 0
            assert text in capsys.readouterr().out
        unknown = options_of(
            reembed.reembed, ["--embedding", "llama_index:nowhere:Nothing", "--apply", "--url", url]
        )
        with pytest.raises((CommandError, StartRefusedError), match="nowhere"):
            await reembed._reembed(app.container.settings, unknown)
    assert folders(tmp_path) == ["store", "store.reembed"]


@pytest.mark.slow("opens the application more than once")
async def test_over_http_a_copy_is_planned_started_followed_and_cancelled(tmp_path: Path) -> None:
    async with started(tmp_path) as app, routed(app, tmp_path) as client:
        for number in range(8):
            await app.ask(f"Question {number}")
        planned = await client.post("/admin/reembed", json={"embedding": WIDER})
        assert (planned.status_code, planned.json()["needed"]) == (202, True)
        assert folders(tmp_path) == ["store"]
        begun = await client.post("/admin/reembed?dry_run=false", json={"embedding": SLOW})
        assert begun.json()["status"] == "running"
        assert (await client.delete("/admin/reembed")).json()["status"] == "cancelled"
        await client.post("/admin/reembed?dry_run=false", json={"embedding": WIDER})
        async with asyncio.timeout(20):
            while (await client.get("/admin/reembed")).json()["status"] != "prepared":  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # between two requests
        for body in ({}, {"embedding": ""}, {"embedding": "x"}, {"embedding": WIDER, "options": {}}):
            assert (await client.post("/admin/reembed", json=body)).status_code == 422


async def test_only_an_admin_may(tmp_path: Path) -> None:
    server = {"api_keys": "user-key", "admin_api_keys": "admin-key"}
    async with open_app(make_settings(tmp_path, server=server)) as app:
        for key, expected in (("user-key", 403), ("none", 401), ("admin-key", 200)):
            async with routed(app, tmp_path, authorization=f"Bearer {key}") as client:
                assert (await client.get("/admin/reembed")).status_code == expected
                if expected != 200:
                    begun = await client.post("/admin/reembed?dry_run=false", json={"embedding": WIDER})
                    assert begun.status_code == expected


@pytest.mark.full("writes a whole store anew")
async def test_a_start_with_the_same_embedding_changes_nothing(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        await app.ask(QUESTION)
        assert (await prepare(app, tmp_path)).status == "prepared"
    for _ in range(2):
        async with started(tmp_path) as app:
            assert await app.container.conversations.turns.count() == 1
    assert folders(tmp_path) == ["store", "store.reembed"]
    async with open_container(make_settings(tmp_path)):
        pass
