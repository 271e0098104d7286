"""Exports of other products imported over HTTP, after a plan; and by the command."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.app import App, make_settings, open_app, serving
from tests.support.servers.commands import command
from tests.support.wire.exports import EXPORTS, chatgpt, many

PATH = "/sessions/import/file"


async def import_file(app: App, value: Any, **params: str) -> dict[str, Any]:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    response = await app.client.post(PATH, content=content, params=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_plan_precedes_the_import_and_a_second_import_adds_only_what_is_new(app: App) -> None:
    plan = await import_file(app, chatgpt())
    planned = plan["conversations"][0]
    assert (plan["applied"], planned["turns"], planned["fresh"], planned["branches"]) == (False, 3, 3, 2)
    assert (await app.client.get("/sessions")).json()["sessions"] == []
    await import_file(app, chatgpt(), apply="true")
    session = (await app.client.get("/sessions")).json()["sessions"][0]
    assert (session["title"], session["turn_count"], session["session_id"]) == (
        "Lineage",
        3,
        planned["session_id"],
    )
    assert session["hold"] is True
    again = await import_file(app, chatgpt(), apply="true")
    assert again["conversations"][0]["fresh"] == 0
    grown = chatgpt()
    nodes = grown[0]["mapping"]
    nodes["q3"] = {"parent": "a2", "message": {**nodes["q1"]["message"], "content": {"parts": ["More?"]}}}
    assert (await import_file(app, grown, apply="true"))["conversations"][0]["fresh"] == 1
    tree = (await app.client.get(f"/sessions/{session['session_id']}/tree")).json()["turns"]
    parents = {turn["question"]: turn["parent_turn_id"] for turn in tree}
    questions = {turn["turn_id"]: turn["question"] for turn in tree}
    assert len(tree) == 4
    assert questions[parents["More? [plan.pdf]"]] == "[image] And this?"


async def test_conversations_of_each_product_are_imported_and_exported_again(app: App) -> None:
    for product, export in EXPORTS.items():
        plan = await import_file(app, export(), apply="true")
        session_id = plan["conversations"][0]["session_id"]
        path = f"/sessions/{session_id}/export"
        exported = (await app.client.get(path, params={"format": "json"})).json()
        assert len(exported["turns"]) == plan["conversations"][0]["turns"], product
        del exported["session_id"]
        for turn in exported["turns"]:
            turn["turn_id"] = turn["turn_id"][:-4] + "0000"
            turn["parent_turn_id"] = turn["parent_turn_id"] and turn["parent_turn_id"][:-4] + "0000"
        assert (await app.client.post("/sessions/import", json=exported)).status_code == 201, product


@pytest.mark.full("ten thousand messages are stored, read and stored again")
async def test_ten_thousand_messages_are_imported_and_exported_unchanged(app: App) -> None:
    """Discriminates: a branch that is lost in a batch, on import or export."""
    plan = (await import_file(app, many("ChatGPT", 10_000), apply="true"))["conversations"][0]
    assert (plan["branches"], plan["orphans"], plan["left_out"]) == (478, 0, 0)
    path = f"/sessions/{plan['session_id']}/export"
    exported = (await app.client.get(path, params={"format": "json"})).json()
    assert len(exported["turns"]) == plan["turns"] == plan["fresh"]
    answers = {turn["answer"] for turn in exported["turns"]}
    assert len(answers) == plan["turns"]
    await app.client.delete(f"/sessions/{plan['session_id']}")
    back = await app.client.post("/sessions/import", json=exported)
    assert back.status_code == 201, back.text
    again = (await app.client.get(path, params={"format": "json"})).json()
    assert again["turns"] == exported["turns"]


async def test_a_zip_and_lines_of_json_are_read(app: App) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("export/conversations.json", json.dumps(chatgpt()))
        archive.writestr("export/user.json", "{}")
    assert (await import_file(app, packed.getvalue()))["product"] == "ChatGPT"
    line = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    assert len((await import_file(app, f"{line}\n{line}\n".encode()))["conversations"]) == 2


async def test_a_broken_file_is_refused_and_nothing_is_written(app: App) -> None:
    for content in (b"", b"{", b"\xff\xfe", b"PK\x03\x04broken", b"[" * 100_000, b'{"a": 1}'):
        response = await app.client.post(PATH, content=content, params={"apply": "true"})
        assert (response.status_code, response.json()["error"]["message"][:5]) == (422, "file:"), content[:9]
        assert (await app.client.get("/sessions")).json()["sessions"] == [], content[:9]
    own = await app.client.post(PATH, json={"session_id": None, "turns": []})
    assert "POST /sessions/import" in own.json()["error"]["message"]  # its place


async def test_the_plan_names_missing_parents_and_cycles_and_only_the_rest_is_imported(app: App) -> None:
    """Discriminates: an import that fails half-way, or silently leaves messages out."""
    export = chatgpt()
    mapping = export[0]["mapping"]
    del mapping["sys"]
    mapping["x"] = {"parent": "y", "message": mapping["q1"]["message"]}
    mapping["y"] = {"parent": "x", "message": mapping["a1"]["message"]}
    plan, applied = [
        (await import_file(app, export, apply=apply))["conversations"][0] for apply in ("false", "true")
    ]
    assert plan == applied
    assert (plan["orphans"], plan["left_out"], plan["turns"], plan["fresh"]) == (1, 2, 3, 3)
    tree = (await app.client.get(f"/sessions/{plan['session_id']}/tree")).json()["turns"]
    assert len(tree) == 3


async def test_one_conversation_that_cannot_be_imported_keeps_all_others_out(app: App) -> None:
    """Discriminates: a plan made one by one, each imported before the next is checked."""
    good, bad = chatgpt()[0], {**chatgpt()[0], "id": "b", "conversation_id": "b", "mapping": 7}
    response = await app.client.post(PATH, content=json.dumps([good, bad]).encode(), params={"apply": "true"})
    assert response.status_code == 422
    assert (await app.client.get("/sessions")).json()["sessions"] == []


def zipped(content: bytes, claimed_bytes: int = 0) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("conversations.json", content)
        archive.infolist()[0].file_size = claimed_bytes or len(content)
    return packed.getvalue()


async def test_an_archive_that_is_too_large_once_unpacked_is_refused(app: App) -> None:
    """The last one was 380 MB of objects from 67 kB. Discriminates: only a limit of bytes."""
    for content, why in (
        (zipped(b"[]", 1_000_000_000), "has more than 500000000 bytes"),
        (zipped(json.dumps(chatgpt()).encode(), 100), "file: "),
        (zipped(b"[%b{}]" % (b"{}," * 5_100_000)), "has more than 10000000 values"),
    ):
        assert len(content) < 1_000_000
        response = await app.client.post(PATH, content=content, params={"apply": "true"})
        assert response.status_code == 422
        assert why in response.json()["error"]["message"]
        assert (await app.client.get("/sessions")).json()["sessions"] == [], why


async def test_a_gigabyte_body_is_read_only_up_to_the_limit(tmp_path: Path) -> None:
    """Discriminates: a body that is read completely before its size is checked."""
    read = 0

    async def gigabyte() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1_000):
            read += 1_000_000
            yield b" " * 1_000_000

    async with open_app(make_settings(tmp_path, server={"max_upload_bytes": 5_000_000})) as app:
        for headers in ({}, {"content-length": "1000000000"}):
            read = 0
            response = await app.client.post(
                PATH, content=gigabyte(), headers=headers, params={"apply": "true"}
            )
            assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
            assert read <= 7_000_000
        assert (await app.client.get("/sessions")).json()["sessions"] == []


@pytest.mark.slow("starts the command's process twice")
async def test_the_command_shows_the_plan_and_applies_it(tmp_path: Path) -> None:
    import asyncio

    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(chatgpt()))
    async with serving(make_settings(tmp_path / "data")) as url:
        where = ("import", str(file), "--url", url)
        plan = await asyncio.to_thread(command, "wenmai", *where)
        assert "3 new turns would be imported" in plan.stdout, plan.stderr
        applied = await asyncio.to_thread(command, "wenmai", *where, "--apply", "--json")
        assert json.loads(applied.stdout)["applied"] is True
        again = await asyncio.to_thread(command, "wenmai", *where)
        assert "everything in it is already stored" in again.stdout


@pytest.mark.slow("starts the command's process three times")
async def test_the_command_says_that_an_own_export_is_already_stored(tmp_path: Path) -> None:
    """Discriminates: a plan of nothing, whose --apply then fails with 409."""
    import asyncio

    file = tmp_path / "session.json"
    async with serving(make_settings(tmp_path / "data")) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            body = {"turns": [{"question": "Where?", "answer": "Upstairs."}]}
            made = (await client.post("/sessions/import", json=body)).json()["session_id"]
            export = await client.get(f"/sessions/{made}/export", params={"format": "json"})
            file.write_text(export.text)
            for words in ((), ("--apply",)):
                shown = await asyncio.to_thread(command, "wenmai", "import", str(file), "--url", url, *words)
                assert shown.returncode == 0, shown.stderr
                assert "This conversation is already stored." in shown.stdout
            await client.delete(f"/sessions/{made}")
        again = await asyncio.to_thread(command, "wenmai", "import", str(file), "--url", url, "--apply")
        assert "1 new turn imported" in again.stdout


@pytest.mark.slow("starts the command's process")
async def test_the_command_names_the_setting_that_an_export_exceeds(tmp_path: Path) -> None:
    """Discriminates: sending it all the same, whose refusal is lost when the server closes the connection."""
    import asyncio

    file = tmp_path / "session.json"
    file.write_text(json.dumps({"turns": [{"question": "Where?", "answer": "up " * 10_000_000}]}))
    async with serving(make_settings(tmp_path / "data", server={"max_upload_bytes": 1_000_000})) as url:
        shown = await asyncio.to_thread(command, "wenmai", "import", str(file), "--url", url, "--apply")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert f"the file has {file.stat().st_size} bytes" in shown.stderr
    assert "raise MAX_UPLOAD_BYTES" in shown.stderr
