"""Models that are listed, added, changed, tried and removed while the server runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from tests.support.models.provider_stub import Answer, serving
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import CHAT, App, make_settings, open_app

KEY = "sk-of-the-stub"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubLLM]:
    monkeypatch.setenv("STUB_API_KEY", KEY)
    with running_stub(StubLLM(models=[{"id": "small"}, {"id": "large", "max_model_len": 65_536}])) as running:
        yield running


def settings(tmp_path: Path, stub: StubLLM, **llms: Any) -> Settings:
    table = {"provider": "openai", "model": "of-the-file", "base_url": stub.url}
    return make_settings(tmp_path, models={"llms": {"mine": table, **llms}})


def table(stub: StubLLM, **fields: Any) -> dict[str, Any]:
    return {
        "provider": "openai",
        "model": "small",
        "base_url": stub.url,
        "api_key_env": "STUB_API_KEY",
        **fields,
    }


async def put(app: App, model_id: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    response = await app.client.put(f"/admin/models/{model_id}", json=body)
    assert KEY not in response.text
    return response.status_code, response.json()


async def test_a_model_is_added_changed_tried_and_survives_a_restart(tmp_path: Path, stub: StubLLM) -> None:
    """Discriminates: a model of this process alone; a key that is stored; a replaced model that still
    answers."""
    async with open_app(settings(tmp_path, stub)) as app:
        assert (await put(app, "fast", table(stub)))[0] == 200
        await app.ask("一？", model_id="fast")
        assert (stub.bodies[-1]["model"], stub.keys[-1]) == ("small", f"Bearer {KEY}")
        _, kept = await put(app, "fast", table(stub, model="large", temperature=0.9))
        assert kept["models"]["fast"] == table(stub, model="large", temperature=0.9)
        check = await app.client.get("/admin/models/check", params={"model_id": "fast"})
        assert [(each["name"], each["ok"]) for each in check.json()["models"]] == [("model fast", True)]
        listed = (await app.client.get("/models")).json()["models"]
        assert [(each["id"], each["label"]) for each in listed][-1] == ("fast", "large")
    async with open_app(settings(tmp_path, stub)) as app:
        session_id = (await app.ask("二？", model_id="fast")).session_id
        assert (stub.bodies[-1]["model"], stub.bodies[-1]["temperature"]) == ("large", 0.9)
        await app.client.patch(f"/sessions/{session_id}", json={"model_id": "fast"})
        assert (await app.client.delete("/admin/models/fast")).json() == {"models": {}}
        assert (await app.client.delete("/admin/models/fast")).status_code == 404
        await app.ask("三？", session_id=session_id)
        assert stub.bodies[-1]["model"] == "of-the-file"
    async with open_app(settings(tmp_path, stub)) as app:
        assert (await app.client.get("/admin/models")).json() == {"models": {}}


async def test_a_model_of_the_file_is_never_replaced(tmp_path: Path, stub: StubLLM) -> None:
    """Discriminates: a stored table that overrides the file's; a start that fails because of it."""
    async with open_app(settings(tmp_path, stub)) as app:
        assert (await put(app, "mine", table(stub)))[0] == 409
        assert (await app.client.delete("/admin/models/mine")).status_code == 409
        assert (await put(app, "later", table(stub)))[0] == 200
    later = {"provider": "openai", "model": "also-of-the-file", "base_url": stub.url}
    async with open_app(settings(tmp_path, stub, later=later)) as app:
        await app.ask("一？", model_id="later")
        assert stub.bodies[-1]["model"] == "also-of-the-file"


async def test_the_models_that_a_server_offers_are_listed(tmp_path: Path, stub: StubLLM) -> None:
    async with open_app(settings(tmp_path, stub)) as app:
        expected = [{"name": "small", "window": 0}, {"name": "large", "window": 65_536}]
        asked = [{"model_id": "mine"}, {"base_url": stub.url, "api_key_env": "STUB_API_KEY"}]
        for params in asked:
            reply = await app.client.get("/admin/models/available", params=params)
            assert reply.json() == {"models": expected, "message": ""}
        unknown = await app.client.get("/admin/models/available", params={"model_id": "none"})
        assert unknown.status_code == 404
        away = await app.client.get("/admin/models/available", params={"base_url": "http://127.0.0.1:9/v1"})
        assert (away.status_code, away.json()["models"]) == (200, [])
        assert "could not be reached" in away.json()["message"]


async def test_the_error_of_an_added_model_names_its_own_key_setting_and_hides_the_key(
    tmp_path: Path, stub: StubLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: OPENAI_API_KEY as the hint; a key that was not known when the server started."""
    secret = "4f9b2c7d1e8a6053xyz"
    monkeypatch.setenv("STUB_API_KEY", secret)
    words = json.dumps({"error": {"message": f"no, {secret}"}}).encode()
    async with (
        serving(Answer((words,), status="401 Unauthorized")) as bad,
        open_app(settings(tmp_path, stub)) as app,
    ):
        assert (await put(app, "bad", table(stub, base_url=f"{bad.url}/v1")))[0] == 200
        check = await app.client.get("/admin/models/check", params={"model_id": "bad"})
        asked = await app.client.post(CHAT, json={"question": "Hm?", "model_id": "bad", "stream": False})
    hint = "“no, ***” Check the key in STUB_API_KEY."
    assert check.json()["models"][0]["message"].endswith(hint)
    assert asked.json()["error"]["message"].endswith(hint)


WRONG_FIELDS: tuple[dict[str, Any], ...] = (
    {"provider": "gguf"},
    {"api_key": "sk-1"},
    {"api_key_env": "PATH"},
    {"api_key_env": "QDRANT_API_KEY"},
    {"api_key_env": "NOT_SET_API_KEY"},
    {"api_key_env": "OPENAI_API_KEY"},
    {"base_url": "ftp://x"},
    {"base_url": "http://name:secret@127.0.0.1/v1"},
    {"context_window": 5},
    {"options": {"api_key": "x"}},
    {"model": ""},
)


async def test_an_unusable_table_is_refused_and_nothing_stored(
    tmp_path: Path, stub: StubLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: a key that is sent to a server it was not meant for."""
    for name in ("QDRANT_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "x")
    async with open_app(settings(tmp_path, stub)) as app:
        for fields in WRONG_FIELDS:
            assert (await put(app, "fast", table(stub, **fields)))[0] == 422, fields
            assert (await app.client.get("/admin/models")).json() == {"models": {}}, fields


async def test_only_an_administrator_may(tmp_path: Path, stub: StubLLM) -> None:
    keyed = make_settings(tmp_path, server={"api_keys": ["user"], "admin_api_keys": ["admin"]})
    async with open_app(keyed) as app:
        app.client.headers["authorization"] = "Bearer user"
        assert (await put(app, "fast", table(stub)))[0] == 403
        assert (await app.client.get("/admin/models/available")).status_code == 403
