"""Exports of other products brought in over HTTP, by a plan first; and by the command."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import App, make_settings, serving
from tests.support.servers.commands import command
from tests.support.wire.exports import EXPORTS, chatgpt

PATH = "/sessions/import/file"


async def bring(app: App, value: Any, **params: str) -> dict[str, Any]:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    response = await app.client.post(PATH, content=content, params=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_plan_first_then_the_conversations_and_the_second_time_only_what_is_new(app: App) -> None:
    plan = await bring(app, chatgpt())
    planned = plan["conversations"][0]
    assert (plan["applied"], planned["turns"], planned["fresh"], planned["branches"]) == (False, 3, 3, 2)
    assert (await app.client.get("/sessions")).json()["sessions"] == []
    await bring(app, chatgpt(), apply="true")
    session = (await app.client.get("/sessions")).json()["sessions"][0]
    assert (session["title"], session["turn_count"], session["session_id"]) == (
        "Lineage",
        3,
        planned["session_id"],
    )
    assert session["hold"] is True
    again = await bring(app, chatgpt(), apply="true")
    assert again["conversations"][0]["fresh"] == 0
    grown = chatgpt()
    nodes = grown[0]["mapping"]
    nodes["q3"] = {"parent": "a2", "message": {**nodes["q1"]["message"], "content": {"parts": ["More?"]}}}
    assert (await bring(app, grown, apply="true"))["conversations"][0]["fresh"] == 1
    tree = (await app.client.get(f"/sessions/{session['session_id']}/tree")).json()["turns"]
    parents = {turn["question"]: turn["parent_turn_id"] for turn in tree}
    questions = {turn["turn_id"]: turn["question"] for turn in tree}
    assert len(tree) == 4
    assert questions[parents["More? [plan.pdf]"]] == "[image] And this?"


@pytest.mark.parametrize("product", EXPORTS)
async def test_each_product_comes_in_and_goes_out_again(app: App, product: str) -> None:
    plan = await bring(app, EXPORTS[product](), apply="true")
    session_id = plan["conversations"][0]["session_id"]
    exported = (await app.client.get(f"/sessions/{session_id}/export", params={"format": "json"})).json()
    assert len(exported["turns"]) == plan["conversations"][0]["turns"]
    del exported["session_id"]
    for turn in exported["turns"]:
        turn["turn_id"] = turn["turn_id"][:-4] + "0000"
        turn["parent_turn_id"] = turn["parent_turn_id"] and turn["parent_turn_id"][:-4] + "0000"
    assert (await app.client.post("/sessions/import", json=exported)).status_code == 201


async def test_a_zip_and_lines_of_json_are_read(app: App) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("export/conversations.json", json.dumps(chatgpt()))
        archive.writestr("export/user.json", "{}")
    assert (await bring(app, packed.getvalue()))["product"] == "ChatGPT"
    line = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    assert len((await bring(app, f"{line}\n{line}\n".encode()))["conversations"]) == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"PK\x03\x04broken", b"[" * 100_000, b'{"a": 1}']
)
async def test_a_broken_file_is_refused_and_nothing_is_written(app: App, content: bytes) -> None:
    response = await app.client.post(PATH, content=content, params={"apply": "true"})
    assert (response.status_code, response.json()["error"]["message"][:5]) == (422, "file:")
    assert (await app.client.get("/sessions")).json()["sessions"] == []


@pytest.mark.slow("starts the command's process twice")
async def test_the_command_shows_the_plan_and_applies_it(tmp_path: Path) -> None:
    import asyncio

    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(chatgpt()))
    async with serving(make_settings(tmp_path / "data")) as url:
        where = ("import", str(file), "--url", url)
        plan = await asyncio.to_thread(command, "wenmai", *where)
        assert "3 new turns would be brought in" in plan.stdout, plan.stderr
        applied = await asyncio.to_thread(command, "wenmai", *where, "--apply", "--json")
        assert json.loads(applied.stdout)["applied"] is True
        again = await asyncio.to_thread(command, "wenmai", *where)
        assert "0 new turns" in again.stdout
