"""A store written by the version before the files moved into rooms opens now, with everything in place.

`before_rooms.tar.xz` in tests/fixtures/stores is the `store` folder of that version's data folder (commit
8176fc5, bundled embedding; a sparse archive, since the engine leaves holes in its files). Beside it are that
version's HTTP replies from just before it was closed.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import App, make_settings, open_app

pytestmark = pytest.mark.slow("unpacks a store and loads the bundled embedding for each test")
RENAMED = {"user_query": "question", "assistant_response": "answer"}
"""What the replies of today call it."""
STORES = Path(__file__).parents[1] / "fixtures" / "stores"
BEFORE: dict[str, Any] = json.loads((STORES / "before_rooms.json").read_text(encoding="utf-8"))


@pytest.fixture
async def before(tmp_path: Path) -> AsyncIterator[App]:
    """The current application on a copy of that store; turns do not expire, whenever the test is run."""
    with tarfile.open(STORES / "before_rooms.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # missing in Python 3.11.3
        archive.extractall(tmp_path)
    conversation = {"conversation_expire_days": 36_500, "cleanup_cron": "0 0 1 1 *", "timezone": "UTC"}
    async with open_app(
        make_settings(tmp_path, models={"embedding": "bundled"}, conversation=conversation)
    ) as opened:
        yield opened


async def read(app: App, path: str) -> dict[str, Any]:
    response = await app.client.get(path)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def as_before(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields that the earlier version had, at any depth; additional fields are no loss."""
    return {name: _as_before(now.get(RENAMED.get(name, name)), value) for name, value in before.items()}


def _as_before(now: Any, before: Any) -> Any:
    return as_before(now, before) if isinstance(now, Mapping) and isinstance(before, Mapping) else now


async def test_everything_that_the_earlier_version_stored_is_in_place(before: App) -> None:
    """Discriminates: a payload field, a collection or a vector renamed without the old name being read."""
    schedule = await read(before, "/admin/schedule")
    assert as_before(schedule, BEFORE["schedule"]) == BEFORE["schedule"]
    for session in BEFORE["sessions"]:
        now = await read(before, f"/sessions/{session['session_id']}")
        assert as_before(now, session) == session
    for turn in BEFORE["turns"]:
        now = await read(before, f"/turns/{turn['turn_id']}")
        assert as_before(now, turn) == turn
    for document in BEFORE["documents"]:
        now = await read(before, f"/documents/{document['document_id']}")
        assert as_before(now, document) == document
        chunks = (await read(before, f"/documents/{document['document_id']}/chunks"))["chunks"]
        assert chunks == BEFORE["chunks"][document["document_id"]]
    assert (await read(before, "/admin/receipts"))["receipts"] == BEFORE["receipts"]


async def test_branches_and_summaries_of_the_earlier_version_are_in_place(before: App) -> None:
    nodes: list[dict[str, Any]] = []
    for session in BEFORE["sessions"]:
        nodes += (await read(before, f"/sessions/{session['session_id']}/tree"))["turns"]
    parents = {turn["turn_id"]: turn["parent_turn_id"] for turn in BEFORE["turns"]}
    assert {node["turn_id"]: node["parent_turn_id"] for node in nodes} == parents
    assert [node["turn_id"] for node in nodes if node["has_summary"]] == BEFORE["summarised"]


async def test_a_store_of_the_earlier_version_continues_to_answer(before: App) -> None:
    session = BEFORE["sessions"][0]["session_id"]
    leaf = next(turn for turn in reversed(BEFORE["turns"]) if turn["session_id"] == session)
    asked = await before.ask("豆包什么时候打疫苗？", session_id=session, parent_turn_id=leaf["turn_id"])
    assert "疫苗" in asked.answer
    assert asked.sources[0]["file_name"] == "豆包.md"
    assert (await read(before, f"/turns/{asked.finished['turn_id']}"))["parent_turn_id"] == leaf["turn_id"]
    response = await before.client.post("/search", json={"question": "report sickness by telephone"})
    assert response.status_code == 200, response.text
    assert "Report sickness by telephone" in response.text
