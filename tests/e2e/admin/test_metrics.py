"""GET /metrics of the real server with a model behind HTTP, scraped like Prometheus does."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from config.settings import VERSION
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import CHAT, HASHING
from tests.support.servers.server import running_server
from tests.support.wire.metrics import Figures
from tests.support.wire.sse import Streamed, frames

KEY = "k" * 32


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLLM]:
    with running_stub(StubLLM(usage={"prompt_tokens": 70, "completion_tokens": 3})) as running:
        yield running


@pytest.fixture(scope="module")
def client(stub: StubLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server with an admin's key."""
    folder: Path = tmp_path_factory.mktemp("metrics")
    with running_server(
        folder, OPENAI_BASE_URL=stub.url, EMBEDDING=HASHING, LOAD_SAMPLE="false", ADMIN_API_KEYS=KEY
    ) as server:
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as opened:
            yield opened


def scrape(client: httpx.Client) -> Figures:
    return Figures(client.get("/metrics").raise_for_status().text)


def until(client: httpx.Client, holds: Callable[[Figures], bool]) -> Figures:
    """A turn's counters are updated a moment after its last frame."""
    end = time.monotonic() + 30
    while not holds(figures := scrape(client)):
        assert time.monotonic() < end
        time.sleep(0.05)  # between two scrapes
    return figures


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_an_answer_is_counted_with_its_times_and_tokens(client: httpx.Client) -> None:
    before = scrape(client)
    response = client.post(CHAT, json={"question": "What is one?"})
    assert Streamed(frames(response.text)).answer == "one two three"
    ended = ("turns_total", {"status": "completed", "model": "default"})
    after = until(client, lambda figures: figures(ended[0], **ended[1]) == before(ended[0], **ended[1]) + 1)
    for name, grown in (("answer_tokens_total", 3), ("prompt_tokens_total", 70)):
        assert after(name, model="default") - before(name, model="default") == grown
    for name in ("first_token_seconds", "turn_duration_seconds"):
        assert after(f"{name}_count", model="default") - before(f"{name}_count", model="default") == 1
        assert after(f"{name}_bucket", model="default", le="+Inf") == after(f"{name}_count", model="default")
    for stage in ("retrieve", "rerank", "first_token", "generate", "store"):
        series = "stage_duration_seconds_count"
        assert after(series, stage=stage) - before(series, stage=stage) == 1, stage


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_a_stopped_answer_is_cancelled_and_its_model_call_aborted(
    client: httpx.Client, stub: StubLLM
) -> None:
    before = scrape(client)
    turn_id, stub.words, stub.pause_s = str(uuid.uuid4()), ("word ",) * 2_000, 0.01
    with client.stream("POST", CHAT, json={"question": "Go on?", "turn_id": turn_id}) as response:
        lines = response.iter_lines()
        while not next(lines).startswith("data: CONTENT:"):
            pass
        assert scrape(client)("running_turns") == 1
        client.post(f"/turns/{turn_id}/stop").raise_for_status()
        assert any(line.startswith("data: DONE:") for line in lines)
    stub.words, stub.pause_s = ("one ", "two ", "three"), 0.0
    after = until(client, lambda figures: figures("turns_total", status="cancelled", model="default") == 1)
    until(client, lambda figures: figures("running_turns") == 0)
    whole = "turn_duration_seconds_count"
    assert after(whole, model="default") == before(whole, model="default")
    until(client, lambda figures: figures("model_calls_total", model="default", outcome="left") == 1)


def test_a_model_that_fails_is_counted_with_its_retries(client: httpx.Client, stub: StubLLM) -> None:
    stub.status = 503
    response = client.post(CHAT, json={"question": "Are you there?"})
    stub.status = 200
    assert "ERROR" in Streamed(frames(response.text)).kinds
    figures = until(client, lambda now: now("turns_total", status="failed", model="default") == 1)
    assert figures("model_retries_total", model="default") == 2
    assert figures("model_calls_total", model="default", outcome="failed") == 1
    codes = {dict(labels)["code"] for name, labels in figures.values if name == "wenmai_turn_failures_total"}
    assert len(codes) == 1


def test_refusals_are_counted_by_code_including_a_scrape_without_the_key(client: httpx.Client) -> None:
    assert client.post(CHAT, json={"question": ""}).status_code == 422
    assert client.post(CHAT, json={"question": "Who?", "model_id": "nobody"}).status_code == 404
    assert client.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
    figures = scrape(client)
    for code in ("empty_question", "unknown_model", "unauthorized"):
        assert figures("errors_total", code=code) == 1, code


def test_the_version_the_process_and_the_store_are_exported(client: httpx.Client) -> None:
    figures = until(client, lambda now: now.has("stored"))
    assert figures("build_info", version=VERSION) == 1
    assert figures.values[("process_resident_memory_bytes", frozenset())] > 1_000_000
    assert figures("ready", part="store") == 1
