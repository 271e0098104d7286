"""Each code that a single request causes, with the status that the guide names beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from routes.errors import error_in_openai
from tests.house.reference import statuses
from tests.support.servers.app import CHAT, App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN = "730854c1-24ad-4cfb-b1a2-bb56edaff9b3"
ALICE = {"authorization": "Bearer alice"}
REQUESTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("unauthorized", "GET", "/models", {"headers": {}}),
    ("forbidden", "GET", "/admin/stats", {}),
    ("forbidden", "POST", CHAT, {"json": {"question": "?"}, "headers": {**ALICE, "origin": "http://a.test"}}),
    ("invalid_host", "GET", "/models", {"headers": {**ALICE, "host": "elsewhere.test"}}),
    ("not_found", "GET", "/nowhere", {}),
    ("method_not_allowed", "GET", CHAT, {}),
    (
        "invalid_form",
        "POST",
        "/documents",
        {"content": b"x", "headers": {**ALICE, "content-type": "multipart/form-data"}},
    ),
    ("missing_field", "POST", "/documents", {"files": {"other": ("a.md", b"x")}}),
    ("unknown_field", "PATCH", f"/documents/{UNKNOWN}", {"json": {"tag": ["a"]}}),
    ("unknown_field", "GET", "/sessions?cursor=1", {}),  # `before`, as it is named there
    ("unknown_field", "GET", "/documents?tags=hr", {}),
    ("invalid_field", "POST", "/search", {"json": {"question": ["a"]}}),
    ("unknown_turn", "GET", f"/turns/{UNKNOWN}", {}),
    ("unknown_document", "GET", f"/documents/{UNKNOWN}", {}),
    ("unknown_memory", "GET", f"/memories/{UNKNOWN}", {}),
    ("unknown_library", "GET", "/library/nothing", {}),
    ("memory_refused", "POST", "/memories", {"json": {"content": "my password is hunter2"}}),
    ("unknown_job", "GET", f"/jobs/{UNKNOWN}", {}),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    server = {"api_keys": ("alice",), "admin_api_keys": ("op",), "allowed_hosts": ("wenmai.test",)}
    async with open_app(make_settings(tmp_path_factory.mktemp("codes"), server=server)) as opened:
        yield opened


async def code_of(app: App, method: str, path: str, **request: Any) -> tuple[str, str]:
    response = await app.client.request(method, path, **{"headers": ALICE, **request})
    return response.json()["error"]["code"], str(response.status_code)


@pytest.mark.parametrize(("code", "method", "path", "request_"), REQUESTS)
async def test_a_request_causes_the_code(
    app: App, code: str, method: str, path: str, request_: dict[str, Any]
) -> None:
    assert await code_of(app, method, path, **request_) == (code, statuses()[code])


REFUSALS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("messages.0.content: must be a string or a list", "POST", "/v1/chat/completions", {"content": 5}),
    ("turn_id: this is not a valid id: a UUID is expected.", "POST", CHAT, {"question": "?", "turn_id": 5}),
    ("stream: must be true or false", "POST", CHAT, {"question": "?", "stream": "maybe"}),
    ("limit: must be a whole number", "GET", "/sessions?limit=many", {}),
    ("limit: must be greater than or equal to 1", "GET", "/sessions?limit=0", {}),
    ("confirm: must be 'all'", "DELETE", "/memories?confirm=yes", {}),
    ("base_url: it must be an address like", "PUT", "/admin/models/m", {"base_url": "ftp://x"}),
    ("max_tokens: must be a whole number", "PUT", "/admin/models/m", {"max_tokens": "long"}),
)


@pytest.mark.parametrize(("message", "method", "path", "fields"), REFUSALS)
async def test_a_refused_field_is_explained_without_a_librarys_words(
    app: App, message: str, method: str, path: str, fields: dict[str, Any]
) -> None:
    if "content" in fields:
        fields = {"model": "wenmai", "messages": [{"role": "user", **fields}]}
    elif method == "PUT":
        fields = {"provider": "openai", "model": "m", **fields}
    headers = {"authorization": "Bearer op"}
    response = await app.client.request(method, path, json=fields or None, headers=headers)
    refusal = response.json()["error"]["message"]
    assert refusal.startswith(message), refusal


async def test_a_document_has_no_passage_of_another(app: App) -> None:
    file = {"file": ("tea.md", b"# Tea\nSteep it for three minutes.")}
    added = await app.client.post("/documents", files=file, headers=ALICE)
    document_id = added.json()["document"]["document_id"]
    path = f"/documents/{document_id}/chunks/{UNKNOWN}"
    assert await code_of(app, "GET", path) == ("unknown_chunk", statuses()["unknown_chunk"])


async def test_a_wrong_path_or_method_is_answered_with_what_there_is(app: App) -> None:
    """Discriminates: "Not Found" alone, which a typing error and a wrong address have in common."""
    wrong = [("GET", CHAT, "only POST"), ("PUT", "/sessions", "GET, HEAD, POST"), ("GET", "/no", "/docs ")]
    for method, path, advice in wrong:
        error = (await app.client.request(method, path, headers=ALICE)).json()["error"]
        assert advice in error["message"], error


async def test_an_unknown_parameter_is_answered_with_those_that_there_are(app: App) -> None:
    """Discriminates: the first page again and again; parameters named to somebody without a key."""
    for method, path, possible in (
        ("GET", "/sessions?cursor=1", "before, limit, q"),
        ("POST", "/admin/backfill?days=1", "session_id"),
    ):
        reply = await app.client.request(method, path, headers={"authorization": "Bearer op"})
        assert possible in reply.json()["error"]["message"]
        assert (await app.client.request(method, path)).status_code == 401


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
async def test_openais_clients_get_their_kind_of_error(status: int, kind: str) -> None:
    assert error_in_openai(status, {"code": "internal_error", "message": "Failed."})["type"] == kind
