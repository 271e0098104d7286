"""Uploads: the name is metadata, the content decides, and a refused upload leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from core.errors import BadRequestError
from routes.stream import unless_left
from services.adapters.edge.client import EdgeClient
from services.knowledge.base import UPLOADED_BYTES_PER_OWNER
from tests.support.servers.app import CHAT, App, make_settings, open_app
from tests.support.servers.server import running_server
from tests.support.stores import make_files
from tests.support.stores.documents import fixture
from tests.support.waiting import wait_until

TEXT = b"# Title\nThe rhubarb festival is in June.\n"


async def post(app: App, name: str, content: bytes) -> tuple[int, dict[str, object]]:
    response = await app.client.post("/documents", files={"file": (name, content)})
    return response.status_code, response.json()


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize("name", ["../../etc/passwd.md", "..\\..\\x.md", "/abs/x.md", "C:\\x.md"])
async def test_a_path_in_the_name_is_only_a_name(app: App, name: str) -> None:  # B33–B36
    status, body = await post(app, name, TEXT)
    assert status == 201
    document = body["document"]
    assert isinstance(document, dict)
    assert document["file_name"] in ("passwd.md", "x.md")


async def test_an_invalid_name_is_refused(app: App) -> None:  # B37–B40
    for name in ("x" * 5_000 + ".md", "CON.txt", ".", ".."):
        status, body = await post(app, name, TEXT)
        assert status == 422, body
        assert (await app.container.store.count("documents")).count == 0, name


async def test_the_same_bytes_are_one_document_and_other_bytes_another(app: App) -> None:  # B42–B43
    first, created = await post(app, "a.md", TEXT)
    again, existing = await post(app, "b.md", TEXT)
    other, _ = await post(app, "a.md", TEXT + b"More.")
    assert (first, again, other) == (201, 200, 201)
    assert created["document"]["document_id"] == existing["document"]["document_id"]  # type: ignore[index]


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("a.md", b"", 422, "empty_file"),  # B44
        ("a.pdf", b"MZ\x90\x00" + b"\0" * 200, 415, "unsupported_media_type"),  # B45
        ("a.pdf", b"%PNG not a pdf at all", 415, "unsupported_media_type"),  # B46
        ("a.exe", b"MZ\x90\x00", 415, "unsupported_media_type"),
    ],
)
async def test_content_that_does_not_match_its_declared_type_is_refused(
    app: App, name: str, content: bytes, status: int, code: str
) -> None:
    observed, body = await post(app, name, content)
    error = body["error"]
    assert isinstance(error, dict)
    assert (observed, error["code"]) == (status, code)
    assert (await app.container.store.count("documents")).count == 0


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (make_files.encrypted_pdf("a password"), "encrypted"),  # B47
        (make_files.pdf([[]]), "no_text"),  # B48
    ],
)
async def test_an_encrypted_or_a_scanned_pdf_is_refused_with_its_reason(
    app: App, content: bytes, code: str
) -> None:
    status, body = await post(app, "scan.pdf", content)
    assert (status, body["error"]["code"]) == (422, code)  # type: ignore[index]
    assert (await app.container.store.count("documents")).count == 0


async def test_without_a_file_or_a_form_the_error_says_so(app: App) -> None:
    missing = await app.client.post("/documents", files={"other": ("a.md", TEXT)})
    error = missing.json()["error"]
    assert (missing.status_code, error["code"], error["message"]) == (422, "missing_field", "missing: file")
    untyped = await app.client.post("/documents", content=TEXT)
    assert untyped.status_code == 415
    broken = await app.client.post(
        "/documents", content=b"x", headers={"content-type": "multipart/form-data"}
    )
    assert broken.status_code == 400


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_deleted_document_leaves_no_chunk_and_is_not_found_again(app: App) -> None:
    document_id = await app.add_text("fair.md", TEXT.decode())
    assert (await app.ask("When is the rhubarb festival?")).sources
    deleted = await app.client.delete(f"/documents/{document_id}")
    assert deleted.status_code == 200
    assert (await app.container.store.count("knowledge")).count == 0
    assert (await app.client.get(f"/documents/{document_id}")).status_code == 404
    assert not (await app.ask("When is the rhubarb festival?")).sources


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_upload_waits_until_there_is_room_for_its_bytes(app: App) -> None:
    """Discriminates: reading an upload into memory before the budget has room for it."""
    async with app.container.knowledge.uploads.read.hold("local", UPLOADED_BYTES_PER_OWNER):
        waiting = asyncio.create_task(post(app, "a.md", TEXT))
        await asyncio.sleep(0.3)  # time for it to be read
        assert not waiting.done()
        assert (await app.container.store.count("documents")).count == 0
    assert (await waiting)[0] == 201


async def test_a_client_that_leaves_frees_its_slot_at_once(tmp_path: Path) -> None:
    """RELIABILITY F41. Discriminates: an upload that is read to its end for nobody."""
    waits = asyncio.Event()

    async with open_app(make_settings(tmp_path)) as app:
        uploads = app.container.knowledge.uploads.read

        async def leave() -> dict[str, str]:
            await waits.wait()
            return {"type": "http.disconnect"}

        async def work() -> None:
            async with uploads.hold("local", UPLOADED_BYTES_PER_OWNER):
                waits.set()
                await asyncio.Event().wait()

        with pytest.raises(BadRequestError):
            await unless_left(leave, work())
        assert (await post(app, "a.md", TEXT))[0] == 201


@pytest.mark.full("kills the store's process thirty times, and each time another starts")
async def test_a_store_that_dies_during_an_upload_is_unavailable_and_not_an_internal_error(app: App) -> None:
    """Discriminates: a 500 for a process that ended between two requests of one upload."""
    store = app.container.store
    assert isinstance(store, EdgeClient)

    async def kill_after(pause_s: float) -> None:
        await asyncio.sleep(pause_s)  # a moment of the upload, not a wait for an event
        with suppress(ProcessLookupError):
            os.kill(store.process_id, signal.SIGKILL)

    for number in range(30):
        name, content = f"{number}.md", TEXT + str(number).encode()
        killing = asyncio.create_task(kill_after(number * 0.002))
        status, body = await post(app, name, content)
        await killing
        assert status in (201, 503), body
        if status == 503:
            assert body["error"]["code"] == "store_unavailable"  # type: ignore[index]
            while (await post(app, name, content))[0] == 503:
                pass


@pytest.mark.full("recognises the text of a page, in a server as people run it")
def test_a_scanned_notice_is_uploaded_and_answers(tmp_path: Path) -> None:
    with running_server(tmp_path, LOAD_SAMPLE="false") as server:
        assert ".png" in httpx.get(f"{server.url}/settings/public").json()["formats"]
        files = {"file": ("通知.pdf", fixture("notice.pdf"))}
        added = httpx.post(f"{server.url}/documents", files=files, timeout=60)
        assert added.status_code in (201, 202), added.text
        document = added.json()["document"]["document_id"]
        wait_until(lambda: httpx.get(f"{server.url}/documents/{document}").json()["status"] == "ready", 120)
        answer = httpx.post(
            f"{server.url}{CHAT}", json={"question": "连续休几天年假要副总批准？"}, timeout=60
        ).text
    assert "连续休假超过5天的，须报分管副总批准" in answer.replace("**", "")
