"""Whatever a caller sends, in whatever field: /metrics never contains it, and never grows by it."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.waiting import until
from tests.support.wire.metrics import Figures

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORD = re.compile(r"[a-z_]{1,32}|[\d.]{1,12}(?:dev\d)?|\+Inf")
EACH = pytest.mark.full("works through many cases, for seconds")
CANARIES = ("Quokka", "袋鼠", 'quok"ka\\', "quok\nka} 1", "{model=quokka}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    models = {"llms": {"default": scripted("It is ", *CANARIES), "away": scripted("!")}}
    async with open_app(make_settings(tmp_path_factory.mktemp("canary"), models=models)) as opened:
        yield opened


async def scrape(app: App) -> str:
    await app.container.store_status.refresh()
    return (await app.client.get("/metrics")).text


async def send(app: App, canary: str) -> None:
    """Send it in every place that a caller can fill."""
    client, unknown = app.client, str(uuid.uuid4())
    session = (await client.post("/sessions", json={"title": canary})).json()["session_id"]
    await client.put(f"/sessions/{session}/persona", json={"text": f"You are {canary}."})
    await client.post("/documents", files={"file": (f"{canary}.md", canary.encode())}, data={"tags": canary})
    await client.post("/documents", files={"file": (f"x.{canary}", b"\0\1")}, data={"external_id": canary})
    filters = {"tags": [canary]}
    for body in (
        {"question": f"Why {canary}?", "session_id": session},
        {"question": canary, "model_id": "away"},
        {"question": canary, "filters": filters},
        {"question": canary, "model_id": canary},
        {"question": canary, "turn_id": canary},
        {"question": canary, "parent_turn_id": unknown},
        {"question": f"/{canary}"},
        {"question": f"/title {canary}", "session_id": session},
        {"question": canary, canary: 1},
        {"question": [canary]},
    ):
        await client.post(CHAT, json=body)
    await client.post(CHAT, content=f'{{"question": "{canary}'.encode())
    await client.post("/search", json={"question": canary, "date": canary})
    await client.get(f"/turns/{canary.encode().hex()}")
    await client.get("/nowhere/" + canary.encode().hex(), headers={"x-api-key": canary.encode().hex()})
    await client.request("PROPFIND", "/sessions", params={"q": canary})
    await client.get("/sessions", params={"q": canary}, headers={"origin": "http://quokka.example"})
    await client.get("/models", headers={"host": "quokka.example"})


@pytest.mark.parametrize("canary", [CANARIES[0], *(pytest.param(each, marks=EACH) for each in CANARIES[1:])])
async def test_nothing_that_a_caller_sends_becomes_a_label(app: App, canary: str) -> None:
    """Discriminates: a label made from a message, a path, a file's name or a requested model."""
    await send(app, canary)
    text = await scrape(app)
    for word in ("quok", "Quok", "袋鼠", canary.encode().hex()):
        assert word not in text


@pytest.mark.full("works through many cases, for seconds")
async def test_the_same_requests_with_other_words_create_no_new_series(app: App) -> None:
    """Discriminates: any label that is not from a fixed list of ours."""
    cleaned = await app.client.post("/admin/cleanup")  # or the scheduled one adds its time meanwhile
    assert cleaned.status_code == 200
    await until(lambda: app.container.schedule.state().last_slot is not None)  # its first look has ended
    await send(app, "Quokka")
    before = Figures(await scrape(app)).values.keys()
    for number in range(3):
        await send(app, f"wallaby {number}")
    assert Figures(await scrape(app)).values.keys() == before


async def test_label_values_are_short_words_from_a_fixed_set(app: App) -> None:
    await send(app, "Quokka")
    values = Figures(await scrape(app)).label_values
    assert [value for value in values if not WORD.fullmatch(value)] == []
