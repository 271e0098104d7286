"""Visitors of a site that embeds the widget: its key is public, so it only permits asking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from core.knowledge import SHARED_OWNER, Upload
from tests.routes.openai.support import assistant, user
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKING = "/v1/chat/completions"
ALICE = {"authorization": "Bearer alice"}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    server = {"api_keys": ("alice",), "cors_origins": ("https://www.example.org",)}
    async with open_app(make_settings(tmp_path_factory.mktemp("visitors"), server=server)) as opened:
        yield opened


async def site_key(app: App) -> str:
    reply = (await app.client.get("/settings/widget", headers=ALICE)).json()
    assert reply["origins"] == ["https://www.example.org"]
    match = re.fullmatch(
        r'<script src="http://127.0.0.1/widget.js" data-key="(site-\w+)"></script>', reply["html"]
    )
    assert match, reply
    return match[1]


async def ask(app: App, visitor: str, *messages: dict[str, str], **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {await site_key(app)}", "x-visitor-id": visitor}
    body = {"model": "wenmai", "messages": messages, **more}
    return await app.client.post(ASKING, json=body, headers=headers)


async def test_a_visitors_follow_up_continues_their_session_but_not_another_visitors(app: App) -> None:
    """Discriminates: the same owner for all visitors, whose histories would be recalled in each other's."""
    first = (await ask(app, "one", user("What is a walnut?"))).json()
    answer = first["choices"][0]["message"]["content"]
    history = (user("What is a walnut?"), assistant(answer), user("And a hazel?"))
    mine, others = [(await ask(app, visitor, *history)).json()["wenmai"] for visitor in ("one", "two")]
    assert mine["session_id"] == first["wenmai"]["session_id"] != others["session_id"]
    stolen = await ask(app, "two", user("Well?"), session_id=mine["session_id"])
    assert stolen.status_code == 404
    assert (await app.client.get("/sessions", headers=ALICE)).json()["sessions"] == []


async def test_a_sites_key_opens_no_other_route(app: App) -> None:
    """Discriminates: a key that is accepted as an owner's key."""
    headers = {"authorization": f"Bearer {await site_key(app)}"}
    spec = app.client._transport.app.openapi()  # type: ignore[attr-defined]
    tried = 0
    for path, operations in spec["paths"].items():
        for method in operations:
            if path in (ASKING, "/health/live", "/health/ready"):
                continue
            at = re.sub(r"{\w+}", UNKNOWN, path)
            response = await app.client.request(method.upper(), at, headers=headers)
            assert response.status_code == 401, (method, path)
            tried += 1
    assert tried > 40
    assert (await app.client.post("/mcp", json={}, headers=headers)).status_code == 401


async def test_it_asks_the_default_model_with_the_shared_documents(app: App) -> None:
    """Discriminates: a public key that pays for any text of a model; a passage of the operator's own."""
    for owner, text in (
        (SHARED_OWNER, "The walnut harvest begins in October."),
        ("key-x", "Secret walnuts."),
    ):
        upload = Upload(owner=owner, file_name="harvest.md", content=f"# Harvest\n{text}".encode())
        added = await app.container.knowledge.add(upload)
        await app.container.knowledge.wait(added.job_id or "", [owner])
    reply = await ask(app, "three", user("When does the walnut harvest begin?"))
    assert [each["text"] for each in reply.json()["choices"][0]["message"]["citations"]] == [
        "The walnut harvest begins in October."
    ]
    for model in ("plain/default", "wenmai/default", "gpt-4o"):
        refused = await ask(app, "three", user("Well?"), model=model)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    headers = {"authorization": f"Bearer {(await site_key(app))[:-1]}0"}
    assert (await app.client.post(ASKING, json={}, headers=headers)).status_code == 401


async def test_visitors_do_not_choose_how_long_answers_are(app: App) -> None:
    """Discriminates: a public key with which anybody has answers written that are as long as the window."""
    asked = (await ask(app, "four", user("What is a walnut?"), max_tokens=900_000, temperature=0.3)).json()
    turn = await app.container.chat.pipeline.conversations.turns.get(asked["wenmai"]["turn_id"])
    assert turn is not None
    assert turn.request is not None
    assert (turn.request.max_tokens, turn.request.temperature) == (None, 0.3)


async def test_visitors_leave_room_for_key_holders(tmp_path: Any) -> None:
    """Discriminates: only a limit for each visitor, whose number anybody can make up."""
    server = {"api_keys": ("alice",), "cors_origins": ("https://www.example.org",), "max_streams": 2}
    models = {"llms": {"default": scripted("It is", 60.0, "late.")}}
    async with open_app(make_settings(tmp_path, server=server, models=models)) as app:
        one = asyncio.create_task(ask(app, "one", user("What is a walnut?")))
        await until(lambda: len(app.container.running) == 1)
        refused = await ask(app, "two", user("What is a hazel?"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        body = {"model": "wenmai", "messages": [user("What is an oak?")]}
        colleague = asyncio.create_task(app.client.post(ASKING, json=body, headers=ALICE))
        await until(lambda: len(app.container.running) == 2)
        for asking in (one, colleague):
            asking.cancel()
        await asyncio.gather(one, colleague, return_exceptions=True)


async def test_without_keys_the_widget_tag_has_none(tmp_path: Any) -> None:
    async with open_app(make_settings(tmp_path)) as open_to_all:
        reply = (await open_to_all.client.get("/settings/widget")).json()
    assert reply == {"html": '<script src="http://127.0.0.1/widget.js"></script>', "origins": []}
