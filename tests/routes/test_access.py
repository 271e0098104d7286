"""Who may do what: with the owner's key, another owner's, none, a wrong one."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from core.knowledge import SHARED_OWNER, Upload
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = 9
ALIKE_S = 0.05  # a busy machine; a wait is longer
ALICE, BOB, OPERATOR = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob", "operator"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("access")
    server = {"api_keys": ("alice", "bob"), "admin_api_keys": ("operator",)}
    models = {"llms": {"default": {"provider": "extractive"}, "slow": scripted("a word", 60.0)}}
    async with open_app(make_settings(folder, server=server, models=models)) as opened:
        yield opened


def routes(app: App) -> list[tuple[str, str]]:
    """Every (method, path) that OpenAPI lists, with an unknown id where one is needed."""
    unknown = "00000000-0000-4000-8000-000000000000"
    spec = app.client._transport.app.openapi()  # type: ignore[attr-defined]
    names = ("session_id", "turn_id", "document_id", "job_id", "share_id")
    results = []
    for path, methods in spec["paths"].items():
        for name in names:
            path = path.replace(f"{{{name}}}", unknown)
        results += [(method.upper(), path) for method in methods]
    return results


OPEN_TO_ALL = {"/health/live", "/health/ready"}


async def test_every_route_but_health_needs_a_key(app: App) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
        for method, path in routes(app):
            response = await app.client.request(method, path, headers=headers)
            assert (response.status_code == 401) != (path in OPEN_TO_ALL), (method, path, response.text)
            asks = response.headers.get("www-authenticate", "").startswith("Bearer")
            assert asks != (path in OPEN_TO_ALL), (method, path)


async def test_every_route_is_listed_and_the_list_needs_a_key(app: App) -> None:
    """Discriminates: FastAPI's own `/openapi.json`, which is open to all; a route missing in the sweep."""
    server: FastAPI = app.client._transport.app  # type: ignore[attr-defined]
    routers: list[APIRouter] = [included.original_router for included in server.routes]  # type: ignore[attr-defined]
    own = [route for router in routers for route in router.routes]
    answering = [route for route in own if isinstance(route, APIRoute)]
    assert len(answering) == len(own)
    hidden = {route.path for route in answering if not route.include_in_schema}
    assert hidden == {
        "/",
        "/docs",
        "/web/{path:path}",
        "/openapi.json",
        "/mcp",
        "/shared/{token}",
        "/widget.js",
    }
    assert (await app.client.get("/openapi.json")).status_code == 401
    spec = (await app.client.get("/openapi.json", headers=ALICE)).json()
    assert "/knowledge_chat_conversation" in spec["paths"]


async def test_the_key_may_be_in_either_header(app: App) -> None:
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
    for method, status in (("GET", 200), ("DELETE", 403), ("GET", 200)):
        assert (await app.client.request(method, path, headers=ALICE)).status_code == status, method


async def test_only_an_admin_key_reaches_the_admin_routes(app: App) -> None:
    for path in ("/admin/stats", "/admin/schedule"):
        assert (await app.client.get(path, headers=ALICE)).status_code == 403
        assert (await app.client.get(path, headers=OPERATOR)).status_code == 200
    assert (await app.client.post("/admin/cleanup", headers=ALICE)).status_code == 403
    report = (await app.client.post("/admin/cleanup", headers=OPERATOR)).json()
    assert (report["dry_run"], report["deleted"]) == (True, 0)


@dataclass(frozen=True)
class Busy:
    """A session of Alice's in which a turn runs, and that turn."""

    session_id: str
    turn_id: str


@pytest_asyncio.fixture(loop_scope="module")
async def busy(app: App) -> AsyncIterator[Busy]:
    session = await app.client.post("/sessions", json={"title": "Mine"}, headers=ALICE)
    ids = Busy(session.json()["session_id"], str(uuid.uuid4()))
    body = {"question": "Well?", "session_id": ids.session_id, "turn_id": ids.turn_id, "model_id": "slow"}
    asking = asyncio.create_task(app.client.post(CHAT, json=body, headers=ALICE))
    await until(lambda: app.container.running.get(ids.turn_id) is not None)
    yield ids
    await app.client.post(f"/turns/{ids.turn_id}/stop", headers=ALICE)
    await asking


ROWS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/sessions/{session_id}", None),
    ("PATCH", "/sessions/{session_id}", {"title": "Yours"}),
    ("DELETE", "/sessions/{session_id}", None),
    ("GET", "/sessions/{session_id}/turns", None),
    ("GET", "/sessions/{session_id}/tree", None),
    ("GET", "/sessions/{session_id}/export", None),
    ("POST", "/sessions/{session_id}/shares", {}),
    ("GET", "/sessions/{session_id}/shares", None),
    ("DELETE", "/sessions/{session_id}/shares/{share_id}", None),
    ("PUT", "/sessions/{session_id}/persona", {"text": "Be kind."}),
    ("DELETE", "/sessions/{session_id}/persona", None),
    ("GET", "/turns/{turn_id}", None),
    ("GET", "/turns/{turn_id}/prompt", None),
    ("GET", "/turns/{turn_id}/images/{number}", None),
    ("GET", "/turns/{turn_id}/memories", None),
    ("GET", "/turns/{turn_id}/stream", None),
    ("POST", "/turns/{turn_id}/stop", None),
    ("PUT", "/turns/{turn_id}/feedback", {"rating": "up"}),
    ("POST", "/turns/{turn_id}/tools/{call_id}", {"approve": True}),
    ("DELETE", "/turns/{turn_id}", None),
    ("POST", CHAT, {"question": "Go on?", "session_id": "{session_id}", "begin_session": False}),
    ("POST", CHAT, {"question": "Go on?", "session_id": "{session_id}", "parent_turn_id": "{turn_id}"}),
    ("POST", CHAT, {"question": "Go on?", "parent_turn_id": "{turn_id}"}),
    ("POST", "/search", {"question": "Go on?", "session_id": "{session_id}"}),
]


def filled_in(body: dict[str, Any] | None, ids: Busy) -> dict[str, Any]:
    values = (body or {}).items()
    return {name: value.format(**vars(ids)) if isinstance(value, str) else value for name, value in values}


def same_for_a_stranger(response: httpx.Response) -> tuple[int, dict[str, Any], list[str]]:
    """All that a caller sees, except the request's own number and the time."""
    body = response.json()
    body.get("error", {}).pop("request_id", None)
    return response.status_code, body, sorted(set(response.headers))


async def test_a_strangers_busy_object_looks_like_an_unknown_one_on_every_route(app: App, busy: Busy) -> None:
    """Discriminates: a claim by the session alone, which answers `session_busy`."""
    listed = {path.replace("{", "").replace("}", "") for path in described_paths(app)}
    tried = {path.replace("{", "").replace("}", "") for _, path, _ in ROWS}
    by_id = {path for path in listed if "session_id" in path or "turn_id" in path}
    assert by_id <= tried, by_id - tried
    for method, path, body in ROWS:
        seen = []
        for ids in (busy, Busy(str(uuid.uuid4()), str(uuid.uuid4()))):
            filled = filled_in(body, ids)
            url = path.format(**vars(ids), share_id=ids.turn_id, call_id="c", number=1)
            response = await app.client.request(
                method, url, json=filled if body is not None else None, headers=BOB
            )
            seen.append(same_for_a_stranger(response))
        assert seen[0] == seen[1], (method, path)
        assert seen[0][0] in (404, 422), (method, path, seen[0])
    assert app.container.running.get(busy.turn_id) is not None


async def test_a_strangers_session_id_cannot_be_used_whether_it_is_busy_or_not(app: App, busy: Busy) -> None:
    """An id that nobody has would begin a session. Discriminates: taking one over; `session_busy`."""
    idle = (await app.client.post("/sessions", json={}, headers=ALICE)).json()["session_id"]
    for path, field in ((CHAT, "question"), ("/api/v1/chat", "message")):
        seen = []
        for session_id in (busy.session_id, idle):
            body = {field: "Go on?", "session_id": session_id}
            seen.append(same_for_a_stranger(await app.client.post(path, json=body, headers=BOB)))
        assert seen[0] == seen[1], path
        assert (seen[0][0], seen[0][1]["error"]["code"]) == (404, "unknown_session")


@pytest.mark.full("asks each of eighteen rows eighteen times")
@pytest.mark.alone
async def test_a_strangers_busy_object_takes_as_long_as_an_unknown_one(app: App, busy: Busy) -> None:
    """Alternating; of each row the fastest, which other load of the machine delays least. Discriminates:
    waiting for another owner's turn, or for its storing."""
    for method, path, body in ROWS:
        took_s: dict[str, list[float]] = {"busy": [], "unknown": []}
        for _ in range(ASKED):
            for name, ids in (("busy", busy), ("unknown", Busy(str(uuid.uuid4()), str(uuid.uuid4())))):
                filled = filled_in(body, ids)
                begun = time.perf_counter()
                await app.client.request(
                    method,
                    path.format(**vars(ids), share_id=ids.turn_id, call_id="c", number=1),
                    json=filled or None,
                    headers=BOB,
                )
                took_s[name].append(time.perf_counter() - begun)
        mine, unknown = min(took_s["busy"]), min(took_s["unknown"])
        print(f"{method} {path}: {mine * 1_000:.1f} ms, unknown {unknown * 1_000:.1f} ms")
        assert abs(mine - unknown) < max(ALIKE_S, unknown / 2), (method, path, mine, unknown)


def described_paths(app: App) -> list[str]:
    return list(app.client._transport.app.openapi()["paths"])  # type: ignore[attr-defined]


async def test_another_owners_turn_id_is_taken_whether_its_turn_runs_or_has_ended(
    app: App, busy: Busy
) -> None:
    """Discriminates: waiting for the end of another owner's turn, which reveals that it is being stored."""
    ended = await app.client.post(CHAT, json={"question": "Mine?", "stream": False}, headers=ALICE)
    seen = []
    for turn_id in (busy.turn_id, ended.json()["turn_id"]):
        body = {"question": "Mine?", "turn_id": turn_id, "stream": False}
        seen.append(same_for_a_stranger(await app.client.post(CHAT, json=body, headers=BOB)))
    assert seen[0] == seen[1]
    assert (seen[0][0], seen[0][1]["error"]["code"]) == (409, "turn_conflict")


async def test_an_owner_is_answered_while_a_stranger_uses_the_session_id(app: App) -> None:
    """RELIABILITY F40: 40 of 40 questions were refused. Discriminates: a claim by the session alone."""
    session = await app.client.post("/sessions", json={}, headers=ALICE)
    body = {"question": "Mine?", "session_id": session.json()["session_id"], "stream": False}
    for _ in range(40):
        knock = app.client.post(CHAT, json=body, headers=BOB)  # looks the session up while Alice asks
        refused, answered = await asyncio.gather(knock, app.client.post(CHAT, json=body, headers=ALICE))
        assert (refused.status_code, answered.status_code) == (404, 200)


async def test_a_persona_is_not_attributed_to_a_strangers_passage(app: App) -> None:
    """Discriminates: storing whatever ids are sent; distinguishing an unknown passage from a stranger's."""
    file = {"file": ("mine.md", b"# Mine\nThe hazel is pruned in March.")}
    added = (await app.client.post("/documents", files=file, headers=ALICE)).json()
    document_id = added["document"]["document_id"]
    records = await app.container.store.retrieve("documents", [document_id], with_payload=True)
    await app.container.knowledge.wait(added["job_id"], [(records[0].payload or {})["owner"]])
    chunks = (await app.client.get(f"/documents/{document_id}/chunks", headers=ALICE)).json()["chunks"]
    mine = {"document_id": document_id, "chunk_id": chunks[0]["chunk_id"]}
    unknown = {"document_id": str(uuid.uuid4()), "chunk_id": str(uuid.uuid4())}

    async def set_by(headers: dict[str, str], origin: dict[str, str]) -> httpx.Response:
        session_id = (await app.client.post("/sessions", json={}, headers=headers)).json()["session_id"]
        body = {"text": "Be kind.", **origin}
        return await app.client.put(f"/sessions/{session_id}/persona", json=body, headers=headers)

    refused = [same_for_a_stranger(await set_by(BOB, origin)) for origin in (mine, unknown)]
    assert refused[0] == refused[1]
    assert (refused[0][0], refused[0][1]["error"]["code"]) == (404, "unknown_document")
    assert (await set_by(BOB, {"chunk_id": mine["chunk_id"]})).status_code == 404
    older = (await set_by(ALICE, mine | {"chunk_id": unknown["chunk_id"]})).json()["persona"]
    assert (older["document_id"], older["chunk_id"]) == (document_id, None)
    assert (await set_by(ALICE, mine)).json()["persona"]["chunk_id"] == mine["chunk_id"]


async def test_the_global_figures_are_for_admins(app: App) -> None:
    """Discriminates: `/metrics` for any key."""
    assert (await app.client.get("/metrics", headers=ALICE)).status_code == 403
    assert (await app.client.get("/metrics", headers=OPERATOR)).status_code == 200
