"""/memories over HTTP: listed, written, changed, deleted, copied, switched off; not for others; erased."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from core.operations.erasure import ERASED_ID
from tests.e2e.memory.test_commands import contents, idle
from tests.e2e.memory.test_recall import lines_of, settings_of
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.waiting import until


async def write(app: App, content: str, **body: Any) -> httpx.Response:
    return await app.client.post("/memories", json={"content": content, **body})


async def listed(app: App, **params: Any) -> list[str]:
    body = (await app.client.get("/memories", params=params)).json()
    return [memory["content"] for memory in body["memories"]]


async def test_a_memory_is_written_read_changed_and_deleted(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "written")) as app:
        made = await write(app, "The user's desk is 302")
        assert made.status_code == 201
        memory = made.json()["memory"]
        assert (memory["turn_ids"], memory["session_id"], memory["valid_until"]) == ([], "", None)
        again = await write(app, "the user's desk is 302.")
        assert (again.status_code, again.json()["is_new"]) == (200, False)
        moved = (await write(app, "The user's desk is 303")).json()
        assert [ended["memory_id"] for ended in moved["ended"]] == [memory["memory_id"]]
        path = f"/memories/{moved['memory']['memory_id']}"
        history = (await app.client.get(path)).json()
        assert [each["content"] for each in history["before"]] == ["The user's desk is 302"]
        old = (await app.client.get(f"/memories/{memory['memory_id']}")).json()
        assert old["after"]["content"] == "The user's desk is 303"
        assert await listed(app) == ["The user's desk is 303", "The user's desk is 302"]
        assert await listed(app, current=True) == ["The user's desk is 303"]
        changed = await app.client.patch(
            path, json={"content": "The user's desk is 304", "type": "preference"}
        )
        assert (changed.json()["content"], changed.json()["type"]) == ("The user's desk is 304", "preference")
        await app.ask("What is my desk?")
        assert lines_of("written") == ["- The user's desk is 304"]
        wish = (await write(app, "always answer in French")).json()["memory"]
        reply = await app.client.patch(f"/memories/{wish['memory_id']}", json={"content": "I like bees"})
        assert (wish["type"], reply.json()["type"]) == ("instruction", "preference")  # by its words
        assert (await app.client.delete(f"/memories/{wish['memory_id']}")).json()["erased"] == 1
        assert (await app.client.delete(path)).json()["erased"] == 1
        assert (await app.client.get(path)).status_code == 404
        await write(app, "I like tea")
        turn_id = (await app.ask("What tea do I like?")).finished["turn_id"]
        await app.client.put("/memories/switch", json={"on": False})
        erasure = (await app.client.delete("/memories", params={"confirm": "all"})).json()
        assert (erasure["erased"], erasure["left"]) == (2, 0)
        assert (erasure["proof"]["hits"], erasure["proof"]["complete"]) == (0, True)
        assert {"memories", "conversations.prompt.parts.memory_ids"} <= {
            place["place"] for place in erasure["proof"]["searched"]
        }
        assert (await app.client.get(f"/turns/{turn_id}/memories")).json()["memories"] == []
        receipts = (await app.client.get("/admin/receipts", params={"kind": "erasure"})).json()["receipts"]
        assert receipts[0]["receipt_id"] == erasure["receipt_id"]
        assert receipts[0]["counts"] == {"memories": 2, "manifests": 1, "hits": 0}
        assert await listed(app) == []
        assert (await app.client.get("/memories")).json()["on"] is False
        assert (await app.client.delete("/memories")).status_code == 422


async def test_the_list_is_paged_searched_and_by_type(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "paged")) as app:
        for number in range(5):
            await write(app, f"Bee hive number {number}")
        await write(app, "always answer in French")
        first = (await app.client.get("/memories", params={"limit": 4})).json()
        rest = (await app.client.get("/memories", params={"limit": 4, "before": first["next"]})).json()
        assert (len(first["memories"]), len(rest["memories"]), rest["next"]) == (4, 2, None)
        assert await listed(app, q="HIVE number 3") == ["Bee hive number 3"]
        assert await listed(app, type="instruction") == ["always answer in French"]


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"content": ""}, "memory_refused"),
    ({"content": "   "}, "memory_refused"),
    ({"content": "x" * 501}, "invalid_field"),
    ({"content": "my password is hunter2"}, "memory_refused"),
    ({"content": "a\0b"}, "invalid_field"),
    ({"content": "x", "type": "rumour"}, "invalid_field"),
    ({"content": "x", "owner": "somebody"}, "unknown_field"),
    ({}, "missing_field"),
)


async def test_a_bad_memory_is_422_and_nothing_is_stored(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "bad")) as app:
        for body, code in BAD:
            refused = await app.client.post("/memories", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, code), body
        assert await listed(app) == []


async def test_another_owner_gets_nothing_on_any_route(tmp_path: Path) -> None:
    """(e) Discriminates: a route that reads or writes by the id alone."""
    settings = settings_of(tmp_path, "strangers", server={"api_keys": ("alice", "bob")})
    async with open_app(settings) as app:
        app.client.headers["Authorization"] = "Bearer alice"
        made = (await write(app, "The user's name is Alice")).json()["memory"]
        turn = await app.ask("What is my name?")
        turn_id = turn.finished["turn_id"]
        mine = (await app.client.get(f"/turns/{turn_id}/memories")).json()["memories"]
        assert [memory["memory_id"] for memory in mine] == [made["memory_id"]]
        app.client.headers["Authorization"] = "Bearer bob"
        path = f"/memories/{made['memory_id']}"
        for method, where, body in (
            ("GET", path, None), ("PATCH", path, {"content": "x"}), ("DELETE", path, None),
            ("GET", f"/turns/{turn_id}/memories", None), ("GET", f"/memories/{uuid.uuid4()}", None),
        ):  # fmt: skip
            response = await app.client.request(method, where, json=body)
            assert response.status_code == 404, (method, where)
        assert await listed(app) == []
        assert await listed(app, q="Alice") == []
        assert (await app.client.get("/memories/export")).json() == {"memories": []}
        assert (await app.client.delete("/memories", params={"confirm": "all"})).json()["erased"] == 0
        assert "nothing" in (await app.ask("/forget Alice")).answer.lower()
        await app.ask("What is my name?")
        assert lines_of("strangers") == []
        app.client.headers["Authorization"] = "Bearer alice"
        assert await listed(app) == ["The user's name is Alice"]


async def test_an_import_counts_new_known_broken_and_refused_lines(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "imported")) as app:
        await write(app, "The user's name is Alex")
        items: list[Any] = [{"content": f"Bee hive number {number}"} for number in range(900)]
        items += [{"content": "bee HIVE number 5"}, {"content": "My name is Alex"}]
        items += [{"content": 7}, {}, "a line", None, {"content": "x", "valid_from": "yesterday"}]
        items += [{"content": "my password is hunter2"}, {"content": ""}]
        items += [{"content": "The user lives in Oslo", "valid_from": "2025-01-01T00:00:00Z"}]
        items += [{"content": "The user lives in Rome", "valid_from": "2024-01-01T00:00:00Z"}]
        reply = await app.client.post("/memories/import", json={"memories": items})
        assert reply.json() == {
            "imported": 902, "known": 2, "broken": 5, "refused": {"secret": 1, "empty": 1},
        }  # fmt: skip
        assert await listed(app, current=True, q="lives") == ["The user lives in Oslo"]
        (rome,) = [
            memory
            for memory in (await app.client.get("/memories/export")).json()["memories"]
            if memory["content"].endswith("Rome")
        ]
        assert rome["valid_until"] == "2025-01-01T00:00:00.000000Z"
        copy = (await app.client.get("/memories/export")).json()
        twice = await app.client.post("/memories/import", json=copy)
        assert (twice.json()["imported"], twice.json()["known"]) == (0, len(copy["memories"]))


async def test_an_imported_export_keeps_what_superseded_what(tmp_path: Path) -> None:
    """Discriminates: a history that is lost by an import, and one that names ids of the exporting server."""
    async with open_app(settings_of(tmp_path, "exported")) as app:
        await write(app, "The user's desk is 302")
        await write(app, "The user's desk is 303")
        copy = (await app.client.get("/memories/export")).json()
    for taken in copy["memories"], copy["memories"][:1]:
        async with open_app(settings_of(tmp_path, f"imported_{len(taken)}")) as app:
            assert (await app.client.post("/memories/import", json={"memories": taken})).status_code == 200
            old, *new = (await app.client.get("/memories/export")).json()["memories"]
            assert old["valid_until"] == copy["memories"][0]["valid_until"]
            assert old["superseded_by"] == (new[0]["memory_id"] if new else None)


@pytest.mark.parametrize("mode", ["references", "full"])
async def test_a_deleted_memory_is_named_nowhere_and_its_proof_says_so(tmp_path: Path, mode: str) -> None:
    """Discriminates: its id in the record of a prompt, in the memory that it replaced, in a second answer."""
    async with open_app(settings_of(tmp_path, f"deleted_{mode}")) as app:
        first = (await write(app, "The user's desk is 302")).json()["memory"]
        second = (await write(app, "The user's desk is 303")).json()["memory"]
        turn = await app.ask("What is my desk?")
        assert lines_of(f"deleted_{mode}") == ["- The user's desk is 303"]
        path = f"/memories/{second['memory_id']}"
        erased = (await app.client.delete(path, params={"proof": mode})).json()
        proof = erased["proof"]
        assert (proof["mode"], proof["hits"], proof["complete"], erased["left"]) == (mode, 0, True, 0)
        places = {place["place"] for place in proof["searched"]}
        assert {"memories", "memories.superseded_by", "conversations.prompt.parts.memory_ids"} <= places
        assert erased["receipt_id"]
        old = (await app.client.get(f"/memories/{first['memory_id']}")).json()
        assert (old["superseded_by"], old["after"]) == (None, None)
        assert old["valid_until"] is not None
        prompt = (await app.client.get(f"/turns/{turn.finished['turn_id']}/prompt")).json()
        assert [part["removed"] for part in prompt["parts"] if part["part"] == "memory"] == [True]
        assert (await app.client.delete(path)).status_code == 404


async def test_a_running_answer_no_longer_names_a_deleted_memory_when_it_has_ended(tmp_path: Path) -> None:
    """Discriminates: a record that is written after the proof, with the id in it."""
    model = scripted("好", 600.0, "的", record_as="late")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        memory = (await write(app, "The user's desk is 302")).json()["memory"]
        turn_id = str(uuid.uuid4())
        asking = asyncio.create_task(app.ask("What is my desk?", turn_id=turn_id))
        await until(lambda: "late" in RECORDED)
        proof = (await app.client.delete(f"/memories/{memory['memory_id']}")).json()["proof"]
        assert "memory: running answers" in {each["place"] for each in proof["left"]}
        await app.client.post(f"/turns/{turn_id}/stop")
        await asking
        await app.container.sessions.erasure.close()
        prompt = (await app.client.get(f"/turns/{turn_id}/prompt")).json()
        (part,) = [part for part in prompt["parts"] if part["part"] == "memory"]
        assert (part["memory_ids"], part["removed"]) == ([ERASED_ID], True)


@pytest.mark.full("reads and embeds ten thousand memories")
async def test_of_ten_thousand_lines_the_good_ones_are_imported(tmp_path: Path) -> None:
    """Discriminates: an import that ends at the first broken line, or stores a duplicate; a truncated
    import."""
    good: list[Any] = [
        {"content": f"Bee hive {number} stands in row {number % 97}"} for number in range(8_000)
    ]
    copies = [{"content": each["content"].upper() + "."} for each in good[:1_500]]
    broken: list[Any] = [{"content": number} if number % 2 else f"line {number}" for number in range(450)]
    refused = [{"content": "my password is hunter2"}] * 30 + [{"content": ""}] * 20
    items = [*good, *copies, *broken, *refused]
    Random(3).shuffle(items)
    async with open_app(settings_of(tmp_path, "ten_thousand")) as app:
        reply = await app.client.post("/memories/import", json={"memories": items}, timeout=300)
        assert reply.json() == {
            "imported": 8_000, "known": 1_500, "broken": 450, "refused": {"secret": 30, "empty": 20},
        }  # fmt: skip
        stored = (await app.client.get("/memories/export", timeout=60)).json()["memories"]
        assert len({each["content"].lower().rstrip(".") for each in stored}) == len(stored) == 8_000
        too_many = await app.client.post("/memories/import", json={"memories": [*items, {"content": "x"}]})
        assert too_many.status_code == 422


async def test_the_switch_stops_recall_and_learning_but_keeps_what_is_stored(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "switch")) as app:
        await write(app, "用户的名字是张三")
        assert (await app.client.put("/memories/switch", json={"on": False})).json() == {"on": False}
        assert (await app.client.get("/memories")).json()["on"] is False
        await app.ask("我叫什么？")
        assert lines_of("switch") == []
        await app.ask("我住在上海", knowledge="always")
        await idle(app)
        assert "关闭" in (await app.ask("记住：我喜欢茶")).answer
        assert await contents(app) == ["用户的名字是张三"]
        await app.client.put("/memories/switch", json={"on": True})
        await app.ask("我叫什么？")
        assert lines_of("switch") == ["- 用户的名字是张三"]


@pytest.mark.parametrize("what", ["turns", "sessions", "owner"])
async def test_erasing_content_erases_its_memories_with_proof(tmp_path: Path, what: str) -> None:
    """(f) Discriminates: a memory that stays, or a proof that does not look for it."""
    async with open_app(settings_of(tmp_path, f"erased_{what}")) as app:
        stated = await app.ask("我叫张三", knowledge="always")
        commanded = await app.ask("/remember 我养蜜蜂", session_id=stated.session_id)
        await idle(app)
        assert sorted(await contents(app)) == ["我养蜜蜂", "用户的名字是张三"]
        paths = {
            "turns": [f"/turns/{each.finished['turn_id']}" for each in (stated, commanded)],
            "sessions": [f"/sessions/{stated.session_id}"],
            "owner": ["/admin/owners/local?confirm=local"],
        }
        for path in paths[what]:
            erased = await app.client.delete(path, params={"proof": "full"} if what != "owner" else None)
            proof = erased.json()["proof"]
            assert (proof["hits"], proof["complete"]) == (0, True)
            assert any(place["place"].startswith("memories") for place in proof["searched"])
        assert await contents(app) == []
        await app.ask("我叫什么？")
        assert lines_of(f"erased_{what}") == []


@pytest.mark.parametrize("outlives", [True, False])
async def test_a_memory_outlives_its_expired_turn_only_if_allowed(tmp_path: Path, outlives: bool) -> None:
    settings = settings_of(tmp_path, "expired", conversation={"memory_outlives_turns": outlives})
    async with open_app(settings) as app:
        stated = await app.ask("我叫张三", knowledge="always")
        await idle(app)
        old = {"created_us": 1_000_000_000_000_000}
        await app.container.store.set_payload("conversations", old, points=[stated.finished["turn_id"]])
        report = await app.container.conversations.delete_old_conversations(30)
        assert report.deleted == 1
        assert await contents(app) == (["用户的名字是张三"] if outlives else [])


@pytest.mark.parametrize("unattended", [True, False])
async def test_memories_expire_by_their_own_limit(tmp_path: Path, unattended: bool) -> None:
    settings = settings_of(
        tmp_path, "aged", conversation={"memory_expire_days": 30, "backup_before_cleanup": True}
    )
    async with open_app(settings) as app:
        old = (await write(app, "Bee hive number 1")).json()["memory"]["memory_id"]
        await write(app, "Bee hive number 2")
        await app.container.store.set_payload("memories", {"created_us": 1_000_000_000_000_000}, points=[old])
        preview = (await app.client.post("/admin/cleanup")).json()
        assert (preview["memories_matched"], preview["memories_removed"]) == (1, 0)
        if unattended:
            await app.container.conversations.cleanup_expired_conversations(unattended=True)
        else:
            by_hand = (await app.client.post("/admin/cleanup", params={"dry_run": False})).json()
            assert (by_hand["memories_matched"], by_hand["memories_removed"]) == (1, 1)
        assert await contents(app) == ["Bee hive number 2"]
        receipts = await app.client.get("/admin/receipts", params={"kind": "expiry"})
        assert [each["counts"]["memories"] for each in receipts.json()["receipts"]] == [1]
        assert all(each["details"]["backup"] for each in receipts.json()["receipts"])
