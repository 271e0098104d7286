"""Who may do what: an own key, a stranger's, none, a wrong one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from core.knowledge import SHARED_OWNER, Upload
from tests.support.servers.app import CHAT, App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB, OPERATOR = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob", "operator"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("access")
    server = {"api_keys": ("alice", "bob"), "admin_api_keys": ("operator",)}
    async with open_app(make_settings(folder, server=server)) as opened:
        yield opened


def routes(app: App) -> list[tuple[str, str]]:
    """Every (method, path) that OpenAPI lists, with an unknown id where one is needed."""
    unknown = "00000000-0000-4000-8000-000000000000"
    spec = app.client._transport.app.openapi()  # type: ignore[attr-defined]
    names = ("session_id", "turn_id", "document_id", "job_id")
    results = []
    for path, methods in spec["paths"].items():
        for name in names:
            path = path.replace(f"{{{name}}}", unknown)
        results += [(method.upper(), path) for method in methods]
    return results


OPEN_TO_ALL = {"/health/live", "/health/ready"}


async def test_every_route_asks_for_a_key_but_health(app: App) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
        for method, path in routes(app):
            response = await app.client.request(method, path, headers=headers)
            assert (response.status_code == 401) != (path in OPEN_TO_ALL), (method, path, response.text)
            asks = response.headers.get("www-authenticate", "").startswith("Bearer")
            assert asks != (path in OPEN_TO_ALL), (method, path)


async def test_every_route_is_listed_and_the_list_asks_for_a_key(app: App) -> None:
    """Discriminates: FastAPI's own `/openapi.json`, which is open to all; a route beside the sweep."""
    server: FastAPI = app.client._transport.app  # type: ignore[attr-defined]
    routers: list[APIRouter] = [included.original_router for included in server.routes]  # type: ignore[attr-defined]
    own = [route for router in routers for route in router.routes]
    hidden = {route.path for route in own if isinstance(route, APIRoute) and not route.include_in_schema}
    assert all(isinstance(route, APIRoute) for route in own)
    assert hidden == {"/", "/docs", "/web/vendor/{name}", "/web/{path:path}", "/openapi.json"}
    assert (await app.client.get("/openapi.json")).status_code == 401
    described = await app.client.get("/openapi.json", headers=ALICE)
    assert "/knowledge_chat_conversation" in described.json()["paths"]


async def test_the_key_may_come_in_either_header(app: App) -> None:
    assert (await app.client.get("/models", headers=ALICE)).status_code == 200
    assert (await app.client.get("/models", headers={"x-api-key": "alice"})).status_code == 200


async def test_a_strangers_session_and_turn_read_as_unknown(app: App) -> None:
    asked = await app.client.post(CHAT, json={"question": "Mine?", "stream": False}, headers=ALICE)
    session_id, turn_id = asked.json()["session_id"], asked.json()["turn_id"]
    tried = [
        ("GET", f"/sessions/{session_id}"),
        ("GET", f"/sessions/{session_id}/turns"),
        ("GET", f"/sessions/{session_id}/tree"),
        ("DELETE", f"/sessions/{session_id}"),
        ("GET", f"/turns/{turn_id}"),
        ("GET", f"/turns/{turn_id}/prompt"),
        ("GET", f"/turns/{turn_id}/stream"),
        ("POST", f"/turns/{turn_id}/stop"),
        ("DELETE", f"/turns/{turn_id}"),
    ]
    for method, path in tried:
        assert (await app.client.request(method, path, headers=BOB)).status_code == 404, (method, path)
    body = {"question": "Go on?", "session_id": session_id}
    assert (await app.client.post(CHAT, json=body, headers=BOB)).status_code == 404
    assert (await app.client.get(f"/turns/{turn_id}", headers=ALICE)).status_code == 200


async def test_a_strangers_document_is_neither_listed_nor_found(app: App) -> None:
    file = {"file": ("secret.md", b"# Harvest\nThe walnut harvest begins on the ninth of October.")}
    added = await app.client.post("/documents", files=file, headers=ALICE)
    document_id, job_id = added.json()["document"]["document_id"], added.json()["job_id"]
    records = await app.container.store.retrieve("documents", [document_id], with_payload=True)
    await app.container.knowledge.wait(job_id, [(records[0].payload or {})["owner"]])
    question = {"question": "When does the walnut harvest begin?", "stream": False}
    assert (await app.client.post(CHAT, json=question, headers=ALICE)).json()["sources"]
    assert not (await app.client.post(CHAT, json=question, headers=BOB)).json()["sources"]
    listed = (await app.client.get("/documents", headers=BOB)).json()["documents"]
    assert document_id not in [document["document_id"] for document in listed]
    for path in (f"/documents/{document_id}", f"/documents/{document_id}/chunks", f"/jobs/{job_id}"):
        assert (await app.client.get(path, headers=BOB)).status_code == 404
    assert (await app.client.delete(f"/documents/{document_id}", headers=BOB)).status_code == 404


async def test_a_shared_document_may_be_read_with_any_key_and_deleted_with_none(app: App) -> None:
    """Discriminates: whoever may read a document may delete it."""
    upload = Upload(owner=SHARED_OWNER, file_name="all.md", content=b"# All\nThis is for everybody.")
    added = await app.container.knowledge.add(upload)
    await app.container.knowledge.wait(added.job_id or "", [SHARED_OWNER])
    path = f"/documents/{added.document.document_id}"
    for method, status in (("GET", 200), ("DELETE", 404), ("GET", 200)):
        assert (await app.client.request(method, path, headers=ALICE)).status_code == status, method


async def test_only_an_admin_key_reaches_the_admin_routes(app: App) -> None:
    for path in ("/admin/stats", "/admin/schedule"):
        assert (await app.client.get(path, headers=ALICE)).status_code == 403
        assert (await app.client.get(path, headers=OPERATOR)).status_code == 200
    assert (await app.client.post("/admin/cleanup", headers=ALICE)).status_code == 403
    report = (await app.client.post("/admin/cleanup", headers=OPERATOR)).json()
    assert (report["dry_run"], report["deleted"]) == (True, 0)
