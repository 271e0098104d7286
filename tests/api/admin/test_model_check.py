"""Doctor and the check of a running server call the models for real, and report what is wrong with each."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from api.offline.doctor import examine
from config.settings import Settings
from core.errors import Cause, StoreLockedError
from core.operations.reports import Finding, Level
from tests.services.adapters.http_stub import Reply, http_stub
from tests.support.machine import times_as_slow
from tests.support.models.provider_stub import Answer, serving
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import make_settings, open_app

KEY = "canary4f9b2c7d1e8a6053xyz"
DEAD = "http://127.0.0.1:9"
TABLE = {"provider": "openai", "model": "m", "base_url": f"{DEAD}/v1", "api_key": KEY}
AT_ONCE = ("Retry-After", "0")


def refusing(status: str) -> Answer:
    words = json.dumps({"error": {"message": f"no, {KEY}"}}).encode()
    return Answer((words,), status=status, headers=(AT_ONCE,))


def event(delta: dict[str, str], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


# What the server does (None: nothing listens), the reported cause, and what the hint for the model names.
BAD: dict[str, tuple[Answer | None, Cause, str]] = {
    "nothing listens": (None, Cause.UNREACHABLE, f"at {DEAD} cannot be reached. Is it running? base_url"),
    "401": (
        refusing("401 Unauthorized"),
        Cause.REFUSED,
        "“no, ***” Check the key in api_key ([llms.default])",
    ),
    "404": (refusing("404 Not Found"), Cause.REFUSED, "Check the model's name in model ([llms.default])"),
    "429": (refusing("429 Too Many"), Cause.REFUSED, "the quota is used up"),
    "500": (refusing("500 Oops"), Cause.REFUSED, "check its log"),
    "hangs": (Answer(end="never"), Cause.TIMEOUT, "TOKEN_TIMEOUT_S"),
    "no JSON": (Answer((b"<html>It works!</html>",)), Cause.NOT_AN_ANSWER, "Check base_url"),
    "closes in the middle": (
        Answer((event({"content": "o"}, None),), end="abrupt"),
        Cause.BROKE_OFF,
        "closed the connection",
    ),
    "answers empty": (Answer((event({}, "stop"), b"data: [DONE]\n\n")), Cause.EMPTY, "returned no text"),
}


@asynccontextmanager
async def misbehaving(answer: Answer | None) -> AsyncIterator[str]:
    if answer is None:
        yield DEAD
        return
    async with serving(answer) as stub:
        yield stub.url


def settings_for(data: Path, url: str, **models: object) -> Settings:
    patience_s = 2 * times_as_slow()  # a refusal must not count as late on a slow machine
    default = {"llms": {"default": {**TABLE, "base_url": f"{url}/v1"}}, "token_timeout_s": patience_s}
    return make_settings(
        data,
        models={**default, "reranker": "http", "reranker_url": url, **models},
        retrieval={"rerank_timeout_s": patience_s},
    )


async def no_users(error: StoreLockedError) -> list[Finding]:
    return []


@pytest.mark.parametrize("name", BAD)
async def test_doctor_reports_what_is_wrong_with_each_model(name: str, tmp_path: Path) -> None:
    """Discriminates: a HEAD request, which any server answers; the same hint for every model; a key in the
    report."""
    answer, cause, hint = BAD[name]
    async with misbehaving(answer) as url:
        options = {"timeout_s": 2}
        embedding = {"embedding": "openai:e", "embedding_base_url": url, "embedding_options": options}
        findings = await examine(settings_for(tmp_path, url, **embedding), no_users, print, fast=True)
    models = {each.name: each for each in findings if each.name in ("model default", "embedding", "reranker")}
    assert [each.level for each in models.values()] == [Level.FAIL] * 3
    assert hint in models["model default"].sentence
    if cause is Cause.REFUSED:
        assert f"(HTTP {name})" in models["embedding"].sentence
        assert f"(HTTP {name})" in models["reranker"].sentence
    assert KEY not in repr(findings)


async def test_a_running_server_reports_the_same_problems(tmp_path: Path) -> None:
    """Discriminates: models checked one after the other, or repeatedly, which takes seconds; a report in
    another language than requested; a failing model that hides the others."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(misbehaving(answer)) for answer, _, _ in BAD.values()]
        tables = {f"m{n}": {**TABLE, "base_url": f"{url}/v1"} for n, url in enumerate(urls)}
        settings = settings_for(tmp_path, DEAD, llms={**tables, "default": TABLE})
        app = await stack.enter_async_context(open_app(settings))
        english = (await app.client.get("/admin/models/check")).json()["models"]
        chinese = (await app.client.get("/admin/models/check?language=zh")).json()["models"]
    by_name = {each["name"]: each for each in english}
    for n, (_, cause, hint) in enumerate(BAD.values()):
        model = by_name[f"model m{n}"]
        assert (model["ok"], model["cause"]) == (False, cause)
        assert hint.replace("default", f"m{n}") in model["message"]
    assert (by_name["embedding"]["ok"], by_name["reranker"]["ok"]) == (True, False)
    assert chinese[0]["message"].startswith("连不上模型服务")
    assert KEY not in repr(english)


async def test_models_that_answer_are_reported_with_their_response_time(tmp_path: Path) -> None:
    """Discriminates: an answer that is read to its end, however long; a missing time; a request that is
    refused because a header has no key."""
    vector = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}
    with (
        running_stub(StubLLM(words=("word ",) * 2_000, pause_s=0.002)) as llm,
        http_stub(Reply(vector)) as embedding,
        http_stub(Reply([{"index": 0, "score": 0.5}])) as reranker,
    ):
        settings = settings_for(
            tmp_path,
            llm.url.removesuffix("/v1"),
            embedding="openai:e",
            embedding_base_url=embedding.url,
            reranker_url=reranker.url,
        )
        began = time.monotonic()
        findings = await examine(settings, no_users, print, fast=True)
        assert time.monotonic() - began < 3
    models = [each for each in findings if each.name in ("model default", "embedding", "reranker")]
    assert [each.level for each in models] == [Level.OK] * 3, models
    assert all(each.sentence.startswith("answered in ") for each in models)
    assert len(llm.bodies) == 1


@pytest.mark.full("the model is as slow as one on a small machine")
async def test_a_slow_model_is_a_warning_and_no_failure(tmp_path: Path) -> None:
    """Discriminates: ten seconds for a model whose first token may take TOKEN_TIMEOUT_S."""
    with running_stub(StubLLM(words=("ok",), pause_s=10.5)) as llm:
        url = llm.url.removesuffix("/v1")
        settings = settings_for(tmp_path, url, token_timeout_s=60, reranker="calibrated")
        findings = await examine(settings, no_users, print, fast=True)
        (model,) = [each for each in findings if each.name == "model default"]
        assert (model.level, "slow" in model.sentence, "TOKEN_TIMEOUT_S" in model.sentence) == (
            Level.WARN,
            True,
            True,
        )
        async with open_app(settings) as app:
            reply = (await app.client.get("/admin/models/check?model_id=default")).json()["models"]
        assert [(each["ok"], each["time_ms"] > 10_000) for each in reply] == [(True, True)]


async def test_the_check_is_for_operators(tmp_path: Path) -> None:
    """Discriminates: a route with which anybody may spend money."""
    keys = {"api_keys": "reader-key", "admin_api_keys": "admin-key"}
    async with open_app(make_settings(tmp_path, server=keys)) as app:
        for key, status in (("", 401), ("reader-key", 403), ("admin-key", 200)):
            reply = await app.client.get("/admin/models/check", headers={"Authorization": f"Bearer {key}"})
            assert reply.status_code == status
