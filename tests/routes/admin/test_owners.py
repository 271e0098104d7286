"""The owners of stored data, for an operator who knows no key; and an owner who does not exist."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.knowledge import SHARED_OWNER, Upload
from core.owners import owner_of, visitor_of
from tests.support.servers.app import CHAT, App, make_settings, open_app
from tests.support.waiting import until

ADMIN, ALICE, BOB = ({"authorization": f"Bearer {name}"} for name in ("admin", "alice", "bob"))
NOBODY = owner_of("nobody")
TURN_OF_NOBODY = {"session_id": "s", "user_query": "?", "status": "completed"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    server = {
        "api_keys": ("alice", "bob"), "admin_api_keys": ("admin",),
        "cors_origins": ("https://www.example.org",),
    }  # fmt: skip
    conversation = {"qa_log": tmp_path / "log"}
    async with open_app(make_settings(tmp_path / "data", server=server, conversation=conversation)) as opened:
        yield opened


async def ask(app: App, headers: dict[str, str], question: str = "What is a walnut?") -> dict[str, Any]:
    body = {"question": question, "stream": False}
    return dict((await app.client.post(CHAT, json=body, headers=headers)).json())


async def listed(app: App, **params: Any) -> dict[str, Any]:
    reply = await app.client.get("/admin/owners", params=params, headers=ADMIN)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def erase(app: App, owner: str, **params: Any) -> httpx.Response:
    return await app.client.delete(
        f"/admin/owners/{owner}", params={"confirm": owner, **params}, headers=ADMIN
    )


async def test_who_asked_last_is_listed_first_with_what_is_stored_of_them(app: App) -> None:
    """Discriminates: shared documents listed as one owner's, an owner without a turn left out."""
    upload = Upload(owner=SHARED_OWNER, file_name="all.md", content=b"# All\nThis is for everybody.")
    await app.container.knowledge.wait((await app.container.knowledge.add(upload)).job_id or "", ["shared"])
    removed = owner_of("a key that was removed")
    mine = Upload(owner=removed, file_name="mine.md", content=b"# Mine\nThis is mine.")
    await app.container.knowledge.wait((await app.container.knowledge.add(mine)).job_id or "", [removed])
    await ask(app, ALICE)
    await ask(app, ALICE)
    await app.client.post("/memories", json={"content": "I keep bees."}, headers=BOB)
    last = await ask(app, BOB)
    everybody = (await listed(app))["owners"]
    turn = (await app.client.get(f"/turns/{last['turn_id']}", headers=BOB)).json()
    assert everybody[0] == {
        "owner": owner_of("bob"), "known": True, "sessions": 1, "turns": 1, "documents": 0, "memories": 1,
        "last_turn_at": turn["timestamp"],
    }  # fmt: skip
    alice = everybody[1]
    assert (alice["owner"], alice["sessions"], alice["turns"]) == (owner_of("alice"), 2, 2)
    assert everybody[2] == {
        "owner": removed, "known": False, "sessions": 0, "turns": 0, "documents": 1, "memories": 0,
        "last_turn_at": None,
    }  # fmt: skip
    assert len(everybody) == 3
    for headers, status in ((ALICE, 403), ({}, 401)):
        assert (await app.client.get("/admin/owners", headers=headers)).status_code == status


async def test_pages_of_owners_contain_each_owner_once(app: App) -> None:
    await ask(app, ALICE)
    await ask(app, BOB)
    for key in ("one", "two"):
        payload = {**TURN_OF_NOBODY, "owner": owner_of(key)}  # without a time, as written by an early version
        point = {"id": str(uuid.uuid4()), "vector": {}, "payload": payload}
        await app.container.store.upsert("conversations", [_point(point)])
    whole = await listed(app)
    assert (len(whole["owners"]), whole["next"]) == (4, None)
    pages, cursor = [], ""
    while cursor is not None:
        page = await listed(app, limit=1, cursor=cursor)
        pages += page["owners"]
        cursor = page["next"]
    assert pages == whole["owners"]
    bad = await app.client.get("/admin/owners", params={"cursor": "x"}, headers=ADMIN)
    assert (bad.status_code, bad.json()["error"]["message"].startswith("cursor:")) == (422, True)


def _point(fields: dict[str, Any]) -> Any:
    from qdrant_client import models

    return models.PointStruct(**fields)


async def test_a_sites_visitor_is_listed_and_erased_by_the_number_in_the_browser(app: App) -> None:
    """Discriminates: a visitor who can be neither seen nor named."""
    tag = (await app.client.get("/settings/widget", headers=ALICE)).json()["html"]
    key = tag.partition('data-key="')[2].partition('"')[0]
    headers = {"authorization": f"Bearer {key}", "x-visitor-id": "7"}
    body = {"model": "wenmai", "messages": [{"role": "user", "content": "What is a walnut?"}]}
    assert (await app.client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    [visitor] = (await listed(app))["owners"]
    assert (visitor["owner"], visitor["known"], visitor["turns"]) == (visitor_of(key, "7"), None, 1)
    in_the_guide = hashlib.sha256(key.encode() + b"\0" + b"7").hexdigest()[:32]
    assert visitor["owner"] == f"site-{in_the_guide}"
    erased = (await erase(app, visitor["owner"])).json()
    assert (erased["erased"]["turns"], erased["proof"]["hits"]) == (1, 0)
    assert (await listed(app))["owners"] == []


async def test_a_dry_run_counts_everything_that_is_erased_later(app: App) -> None:
    """Discriminates: memories and log lines left out of the count."""
    await ask(app, ALICE)
    await app.client.post("/memories", json={"content": "I keep bees."}, headers=ALICE)
    folder = app.container.settings.conversation.qa_log
    assert folder is not None
    await until(lambda: any(folder.glob("*.jsonl")))
    alice = owner_of("alice")
    asked = {"kind": "owner", "name": alice}
    counted = (await app.client.post("/admin/erase", params=asked, headers=ADMIN)).json()["counts"]
    assert counted == {"sessions": 1, "turns": 1, "documents": 0, "chunks": 0, "memories": 1, "log_lines": 1,
                       "images": 0}  # fmt: skip
    erased = (await erase(app, alice)).json()["erased"]
    assert erased == {kind: number for kind, number in counted.items() if number}


async def test_an_unknown_name_is_not_an_erasure_and_leaves_no_receipt(app: App) -> None:
    """Discriminates: a typo that is answered with a proof."""
    await ask(app, ALICE)
    slip = await erase(app, NOBODY)
    assert (slip.status_code, "GET /admin/owners" in slip.json()["error"]["message"]) == (404, True)
    for dry_run in (True, False):
        asked = {"kind": "owner", "name": NOBODY, "confirm": NOBODY, "dry_run": dry_run}
        assert (await app.client.post("/admin/erase", params=asked, headers=ADMIN)).status_code == 404
    for name in ("alice", "key-alice", "site-7", owner_of("alice").upper()):
        refused = await erase(app, name)
        assert refused.status_code == 422
        assert name not in refused.text
    assert (await app.client.get("/admin/receipts", headers=ADMIN)).json()["receipts"] == []
    assert len((await listed(app))["owners"]) == 1


async def test_an_owner_who_was_erased_or_is_only_in_a_backup_still_gets_a_proof(app: App) -> None:
    """Discriminates: refusing what an operator has to show, or what only an archive contains."""
    await ask(app, ALICE)
    await ask(app, BOB)
    await app.container.backups.create()
    alice, bob = owner_of("alice"), owner_of("bob")
    for _ in range(2):
        assert (await erase(app, alice)).status_code == 200
    session = (await app.client.get("/sessions", headers=BOB)).json()["sessions"][0]["session_id"]
    await app.client.delete(f"/sessions/{session}", headers=BOB)
    [archive] = (await erase(app, bob)).json()["proof"]["backups"]
    assert archive["holds"] == "yes"


async def test_a_folders_owner_is_an_owner_as_long_as_it_has_something(app: App) -> None:
    upload = Upload(owner="anna", file_name="a.md", content=b"# A\nText.")
    await app.container.knowledge.wait((await app.container.knowledge.add(upload)).job_id or "", ["anna"])
    assert [each["owner"] for each in (await listed(app))["owners"]] == ["anna"]
    assert (await erase(app, "anna")).json()["erased"]["documents"] == 1
