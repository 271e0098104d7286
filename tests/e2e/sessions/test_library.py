"""The library over HTTP: read from a folder, uploaded, chosen as a persona."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from config.settings import Settings
from core.errors import StartRefusedError
from tests.support.servers.app import App, make_settings, open_app, scripted

ITEM = {"title": "售前", "content": "你是{产品}的售前顾问。", "variables": ["产品"]}
OWN, OPERATOR = ({"authorization": f"Bearer {name}"} for name in ("own", "operator"))


def library_settings(folder: Path, **sections: Any) -> Settings:
    library = folder / "library"
    (library / "客服").mkdir(parents=True)
    (library / "客服" / "人设.md").write_text(
        "# 售前\n你是{产品}的售前顾问。\n\n# 售后\n你是售后顾问。", "utf-8"
    )
    return make_settings(folder / "data", store={"library_dir": library}, **sections)


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    models = {"llms": {"default": scripted("yes", record_as="library")}}
    async with open_app(library_settings(tmp_path, models=models)) as opened:
        yield opened


async def read(app: App, path: str, status: int = 200, **params: Any) -> Any:
    response = await app.client.get(path, params=params)
    assert response.status_code == status, response.text
    return response.json()


async def test_a_folder_is_a_module_a_file_a_batch_and_a_heading_an_item(app: App) -> None:
    assert await read(app, "/library") == {"modules": [{"name": "客服", "batches": 1}], "problems": []}
    batches = await read(app, "/library/客服")
    assert batches == {"module": "客服", "batches": [{"batch_name": "人设", "items": 2}]}
    page = await read(app, "/library/客服/人设", limit=1)
    assert page == {"module": "客服", "batch_name": "人设", "items": [ITEM], "next": 1}
    last = await read(app, "/library/客服/人设", limit=1, after=1)
    assert ([item["title"] for item in last["items"]], last["next"]) == (["售后"], None)
    templates = await read(app, "/templates", q="售")
    assert templates == {"templates": [{**ITEM, "module": "客服", "batch_name": "人设"}]}


async def test_what_does_not_exist_is_unknown_and_no_path_leads_outside(app: App, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("# key\nhidden", "utf-8")
    for path in ("/library/x", "/library/客服/x", "/library/%2e%2e/secret", "/library/..%2f/secret"):
        response = await app.client.get(path)
        assert response.status_code == 404, path
        assert "hidden" not in response.text
    refused = await read(app, "/library/客服/售前", 404)
    assert refused["error"]["code"] == "unknown_library"


async def test_a_changed_file_is_reread_without_a_restart(app: App, tmp_path: Path) -> None:
    """Discriminates: a library that is read only once."""
    folder = tmp_path / "library" / "客服"
    (folder / "人设.md").write_text("# 新的\n内容", "utf-8")
    (folder / "更多.csv").write_bytes("标题,内容\n甲,乙\n".encode("gb18030"))
    page = await read(app, "/library/客服/人设")
    assert [item["title"] for item in page["items"]] == ["新的"]
    assert (await read(app, "/library/客服/更多"))["items"][0]["content"] == "乙"
    (folder / "人设.md").unlink()
    assert [each["batch_name"] for each in (await read(app, "/library/客服"))["batches"]] == ["更多"]


async def test_a_file_that_cannot_be_stored_is_refused_as_such(app: App, tmp_path: Path) -> None:
    """Discriminates: 500 `internal`, even on a full disk."""
    (tmp_path / "library" / "notes").touch()
    response = await app.client.put("/library/notes/a.md", content=b"# a\nb")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")


async def test_bad_files_are_reported_in_a_line_and_affect_nothing_else(app: App, tmp_path: Path) -> None:
    library, outside = tmp_path / "library", tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("# a\nhidden", "utf-8")
    (library / "loose.md").write_text("# a\nb", "utf-8")
    (library / "linked").symlink_to(outside)
    (library / "客服" / "link.md").symlink_to(outside / "a.md")
    (library / "客服" / "inner.md").symlink_to(library / "客服" / "人设.md")
    (library / "客服" / "broken.json").write_text("[{]", "utf-8")
    (library / "客服" / "empty.md").touch()
    (library / "客服" / "人设.json").write_text('{"a": "b"}', "utf-8")
    (library / "ring").symlink_to(library / "ring")
    (library / "客服" / "notes.txt").write_text("x", "utf-8")
    (library / "客服" / "large.md").write_bytes(b"# a\n" + b"x" * 1_000_000)
    os.mkfifo(library / "客服" / "pipe.md")
    listed = await read(app, "/library")
    assert listed["modules"] == [{"name": "客服", "batches": 2}]
    problems = "\n".join(listed["problems"])
    assert len(listed["problems"]) == 10
    for line in (
        "loose.md: it is not in a folder",
        "linked: a link that leads out",
        "ring: ",
        "link.md: a link that leads out",
        "客服/broken.json: line 1: invalid JSON",
        "客服/empty.md: it has no headings",
        "客服/人设.md: 客服/人设.json already has this batch",
        "客服/notes.txt: a batch is a file ending in .md, .csv, .json",
        "客服/large.md: it has more than 1000000 bytes",
        "客服/pipe.md: it is not a file",
    ):
        assert line in problems
    assert "hidden" not in (await app.client.get("/library/客服/inner")).text
    assert str(tmp_path) not in problems


async def test_an_uploaded_batch_is_listed_and_another_replaces_it(app: App, tmp_path: Path) -> None:
    put = await app.client.put("/library/日常/周报.md", content="# 周报\n总结{项目}。")
    assert (put.status_code, put.json()) == (201, {"batch_name": "周报", "items": 1})
    again = await app.client.put("/library/日常/周报.json", content='{"a": "b", "c": "d"}')
    assert (again.status_code, again.json()["items"]) == (200, 2)
    assert [path.name for path in (tmp_path / "library" / "日常").iterdir()] == ["周报.json"]
    assert (await read(app, "/library/日常/周报"))["items"][0]["title"] == "a"
    by_file = await app.client.get("/library/日常/周报.json")
    assert (by_file.status_code, by_file.json()["batch_name"]) == (200, "周报")
    assert (await app.client.delete("/library/日常/周报.md")).status_code == 404
    assert (await app.client.delete("/library/日常/周报.json")).status_code == 200
    assert (await app.client.delete("/library/日常/周报")).status_code == 404
    assert not (tmp_path / "library" / "日常").exists()


async def test_an_unreadable_upload_writes_nothing(app: App, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "library" / "out").symlink_to(tmp_path / "outside")
    for path, content, status in (
        ("/library/m/a.md", b"no heading", 422),
        ("/library/m/a.exe", b"# a\nb", 422),
        ("/library/m/.a.md", b"# a\nb", 422),
        ("/library/%2e%2e/a.md", b"# a\nb", 422),
        ("/library/.m/a.md", b"# a\nb", 422),
        ("/library/m/a%00.md", b"# a\nb", 422),
        ("/library/m/a.md", b"\xff\xfe\x00\xd8", 422),
        ("/library/m/a.md", b"x" * 1_100_000, 413),
        ("/library/out/a.md", b"# a\nb", 422),
    ):
        response = await app.client.put(path, content=content)
        assert response.status_code == status, (path, content[:20], response.text)
        assert not (tmp_path / "library" / "m").exists(), (path, content[:20])
        assert list((tmp_path / "outside").iterdir()) == []


async def test_everybody_reads_and_an_operator_writes(tmp_path: Path) -> None:
    server = {"api_keys": ("own",), "admin_api_keys": ("operator",)}
    async with open_app(library_settings(tmp_path, server=server)) as app:
        assert (await app.client.get("/library")).status_code == 401
        assert (await app.client.get("/library", headers=OWN)).status_code == 200
        for headers, status in ((OWN, 403), (OPERATOR, 201)):
            put = await app.client.put("/library/m/a.md", content="# a\nb", headers=headers)
            assert put.status_code == status
        assert (await app.client.delete("/library/m/a", headers=OWN)).status_code == 403
        assert (await app.client.get("/library/m/a", headers=OWN)).status_code == 200


async def test_a_persona_keeps_its_source_item_and_its_id_when_replaced(app: App) -> None:
    """Discriminates: a source that is lost by an export, or by a change of the text."""
    session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
    path = f"/sessions/{session_id}/persona"
    origin = {"batch_name": "人设", "item": "售前"}
    first = (await app.client.put(path, json={"text": "你是售前顾问。", "name": "售前", **origin})).json()[
        "persona"
    ]
    assert {name: first[name] for name in origin} == origin
    await app.ask("Hello?", session_id=session_id)
    copy = (await app.client.get(f"/sessions/{session_id}/export?format=json")).json()
    second = {"batch_name": "人设", "item": "售后"}
    replaced = (await app.client.put(path, json={"text": "你是售后顾问。", **second})).json()["persona"]
    assert replaced["persona_id"] == first["persona_id"]
    assert {name: replaced[name] for name in second} == second
    await app.client.delete(f"/sessions/{session_id}")
    assert (await app.client.post("/sessions/import", json=copy)).status_code in (200, 201)
    restored = (await read(app, f"/sessions/{session_id}"))["persona"]
    assert {name: restored[name] for name in origin} == origin


async def test_a_path_that_is_not_a_folder_aborts_the_start(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data", store={"library_dir": tmp_path / "nowhere"})
    with pytest.raises(StartRefusedError, match="LIBRARY_DIR"):
        async with open_app(settings):
            pass


async def test_a_folder_that_disappears_is_reported(app: App, tmp_path: Path) -> None:
    """Discriminates: an empty library, as if nobody had filled it."""
    assert (await read(app, "/health/ready"))["warnings"] == {}
    shutil.move(tmp_path / "library", tmp_path / "elsewhere")
    assert await read(app, "/library") == {
        "modules": [], "problems": ["LIBRARY_DIR: No such file or directory."]
    }  # fmt: skip
    health = await read(app, "/health/ready")
    assert (health["status"], list(health["warnings"])) == ("degraded", ["library"])
    shutil.move(tmp_path / "elsewhere", tmp_path / "library")
    assert (await read(app, "/health/ready"))["status"] == "ready"
    assert (await read(app, "/library"))["problems"] == []
