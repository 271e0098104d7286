"""Bad input gets a clear JSON error, nothing is stored, no model is called, and the server stays healthy.

The numbers are those of the project's table of bad inputs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted

JSON = {"content-type": "application/json"}
RECORD = "bad-inputs"
UNKNOWN = "730854c1-24ad-4cfb-b1a2-bb56edaff9b3"  # the same in every process that collects these tests


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: a refused request must leave nothing that affects the next one."""
    folder = tmp_path_factory.mktemp("refused")
    settings = make_settings(folder, models={"llms": {"default": scripted("never", record_as=RECORD)}})
    async with open_app(settings) as opened:
        yield opened


async def refused(app: App, body: bytes | str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Send a raw body; check everything that holds for every refusal; return status, code and message."""
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    response = await app.client.post(CHAT, content=content, headers=JSON if headers is None else headers)
    error = response.json()["error"]
    assert set(error) == {"code", "message", "retryable", "request_id"}
    assert response.headers["x-request-id"] == error["request_id"]
    assert "Traceback" not in response.text
    assert RECORD not in RECORDED
    assert (await app.container.store.count("conversations")).count == 0
    assert (await app.container.store.count("sessions")).count == 0
    assert (await app.client.get("/health/ready")).status_code == 200
    return response.status_code, error["code"], error["message"]


def question(**fields: Any) -> str:
    return json.dumps({"question": "a question", **fields})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("", 400, "invalid_json"),  # B1
        ("[]", 400, "invalid_json"),  # B2
        ('"x"', 400, "invalid_json"),  # B3
        ('{"question": "a', 400, "invalid_json"),  # B4
        ("{}", 422, "missing_field"),  # B5
        ('{"question": "a"}{"question": "b"}', 400, "invalid_json"),  # B6
        (question(question=""), 422, "empty_question"),  # B7
        (question(question=" \n\t "), 422, "empty_question"),  # B8
        (question(question="\u200b\ufeff"), 422, "empty_question"),  # B9
        (question(question=None), 422, "empty_question"),  # B10
        (question(question="").encode("utf-8-sig"), 422, "empty_question"),  # the mark itself is ignored
        (question(question=5), 422, "invalid_field"),
        (question(question="x" * 8_001), 422, "question_too_long"),  # B11
        (question(question="a\0b"), 422, "invalid_field"),  # B14
        (b'{"question": "\xff\xfe"}', 400, "invalid_json"),  # B16
        ('{"question": "a"}'.encode("utf-16"), 400, "invalid_json"),  # B17
        ('{"question": ' + "[" * 100_000 + "]" * 100_000 + "}", 400, "invalid_json"),  # B19
        ('{"question": "a", "deep": ' + "[" * 900 + "]" * 900 + "}", 422, "unknown_field"),  # B20
        (question(rerank_top_n=-5), 422, "invalid_field"),  # B21
        (question(rerank_top_n=0), 422, "invalid_field"),  # B22
        (question(rerank_top_n=10**6), 422, "invalid_field"),  # B23
        (question(rerank_top_n=10.5), 422, "invalid_field"),  # B24
        (question(rerank_top_n="10"), 422, "invalid_field"),  # B25
        ('{"question": "a", "rerank_top_n": NaN}', 400, "invalid_json"),  # B26
        ('{"question": "a", "rerank_top_n": Infinity}', 400, "invalid_json"),
        ('{"question": "a", "rerank_top_n": ' + "9" * 5_000 + "}", 422, "invalid_field"),  # B27
        (question(thinking="yes"), 422, "invalid_field"),  # B28
        (question(thinking=1), 422, "invalid_field"),
        ('{"question": "a", "question": "b"}', 400, "invalid_json"),  # B29
        (question(session_id="nope"), 422, "invalid_field"),
        (question(session_id="x" * 900_000), 422, "invalid_field"),
        (question(session_id="' OR 1=1"), 422, "invalid_field"),
        (question(session_id="../x"), 422, "invalid_field"),
        (question(session_id=UNKNOWN, begin_session=False), 404, "unknown_session"),
        (question(session_id=UNKNOWN, parent_turn_id=UNKNOWN), 404, "unknown_session"),
        (question(parent_turn_id=UNKNOWN), 422, "invalid_parent_turn"),
        (question(model_id="no-such-model"), 404, "unknown_model"),
        (question(model_id="http://169.254.169.254"), 404, "unknown_model"),
        (question(model_id="../../x"), 404, "unknown_model"),
        (question(turn_id="not-a-uuid"), 422, "invalid_field"),
        (question(stream_format="xml"), 422, "invalid_field"),
        (question(unknown=1), 422, "unknown_field"),
    ],
)
async def test_a_bad_body_is_refused(app: App, body: str | bytes, status: int, code: str) -> None:
    actual_status, actual_code, message = await refused(app, body)
    assert (actual_status, actual_code) == (status, code)
    assert len(message) < 500


async def test_a_clients_own_id_begins_a_session_and_another_owners_id_does_not(tmp_path: Path) -> None:
    """Discriminates: a session that is taken over; an id that is refused, or replaced by another."""
    sections: dict[str, dict[str, Any]] = {"server": {"api_keys": ["key-of-a", "key-of-b"]}}
    own = str(uuid.uuid4())
    async with open_app(make_settings(tmp_path, **sections)) as app:
        first, again, theirs = [
            await app.client.post(
                CHAT, json={**body, "stream": False}, headers={"authorization": f"Bearer {key}"}
            )
            for key, body in (
                ("key-of-a", {"question": "Mine?", "session_id": own}),
                ("key-of-a", {"question": "And again?", "session_id": own}),
                ("key-of-b", {"question": "Mine, too?", "session_id": own}),
            )
        ]
        assert (first.json()["session_id"], again.json()["session_id"]) == (own, own)
        turn = await app.client.get(
            f"/turns/{again.json()['turn_id']}", headers={"authorization": "Bearer key-of-a"}
        )
        assert turn.json()["parent_turn_id"] == first.json()["turn_id"]
        assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "unknown_session")


async def test_where_client_ids_create_no_sessions_an_unknown_session_is_refused(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, conversation={"client_session_ids": False})
    async with open_app(settings) as app:
        assert (await refused(app, question(session_id=UNKNOWN)))[:2] == (404, "unknown_session")


async def test_the_message_names_the_field(app: App) -> None:
    for field, value in (("rerank_top_n", 99), ("thinking", "no"), ("stream_format", "csv"), ("surplus", 1)):
        _, _, message = await refused(app, question(**{field: value}))
        assert message.startswith(field)


async def test_a_turn_cannot_be_its_own_parent(app: App) -> None:
    turn_id = str(uuid.uuid4())
    status, code, _ = await refused(app, question(turn_id=turn_id, parent_turn_id=turn_id))
    assert (status, code) == (422, "invalid_parent_turn")


async def test_a_compressed_or_untyped_body_is_refused(app: App) -> None:
    assert (await refused(app, "{}", {**JSON, "content-encoding": "gzip"}))[0] == 415  # B18
    assert (await refused(app, question(), {"content-type": "text/plain"}))[0] == 415  # B30
    assert (await refused(app, question(), {}))[0] == 415


async def test_a_body_over_the_limit_is_refused_with_or_without_a_length(app: App) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 1_000_000
        raise AssertionError("the whole body was read")

    status, code, _ = await refused(app, " " * 32_000_001)  # B12: images are in a body, too
    assert (status, code) == (413, "body_too_large")
    response = await app.client.post(CHAT, content=endless(), headers=JSON)
    assert response.status_code == 413


async def test_wrong_methods_and_paths_answer_in_json(app: App) -> None:
    wrong = await app.client.get(CHAT)  # B31
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    missing = await app.client.get("/nowhere")  # B32
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


async def test_a_foreign_host_or_origin_is_refused(app: App) -> None:
    assert (await refused(app, question(), {**JSON, "host": "evil.test"}))[0] == 400  # B85
    assert (await refused(app, question(), {**JSON, "origin": "http://evil.test"}))[0] == 403  # B86


async def test_unusual_but_legal_text_is_kept_and_the_stream_stays_complete(tmp_path: Path) -> None:
    body = (
        '{"question": "a\\ud800b \\u202e \\u2028 {{7*7}} {x.__class__} </think>DONE:"}'  # B13, B15, B81–B84
    )
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("never")}})
    async with open_app(settings) as app:  # in a separate session, since a turn is stored
        response = await app.client.post(CHAT, content=body, headers=JSON)
        (stored,) = (await app.container.store.scroll("conversations"))[0]
    assert response.status_code == 200
    assert response.text.count("\ndata: DONE:") == 1
    assert (stored.payload or {})["user_query"] == "a\ufffdb \u202e \n {{7*7}} {x.__class__} </think>DONE:"
