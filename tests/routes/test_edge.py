"""What the edge refuses before any route: hosts and origins; and the reply to a refused method."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from httpx import Response

from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "k" * 40
UNKNOWN = "730854c1-24ad-4cfb-b1a2-bb56edaff9b3"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Without keys."""
    async with open_app(make_settings(tmp_path_factory.mktemp("local"))) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """With a key, for other machines."""
    server = {"api_keys": (KEY,), "host": "0.0.0.0", "allowed_hosts": ("Wenmai.example.org",)}
    async with open_app(make_settings(tmp_path_factory.mktemp("shared"), server=server)) as opened:
        yield opened


async def status(app: App, hosts: list[str]) -> int:
    headers = [("host", host) for host in hosts]
    request = app.client.build_request("GET", "/health/live", headers=headers)
    if not hosts:
        del request.headers["host"]
    return (await app.client.send(request)).status_code


MALFORMED: tuple[list[str], ...] = (
    [], [""], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "evil.test"], ["[::1"], ["127.0.0.1:x"], ["a b"],
    ["evil.test@127.0.0.1"], ["127.0.0.1, evil.test"], ["127.0.0.1/x"], ["127.0.0.1#"],
)  # fmt: skip


@pytest.mark.parametrize("hosts", MALFORMED)
async def test_a_request_names_one_host(local: App, shared: App, hosts: list[str]) -> None:
    """Discriminates: reading the first of two; an unclosed bracket, which was a 500."""
    assert [await status(app, hosts) for app in (local, shared)] == [400, 400]


async def test_only_names_of_this_server_are_answered_even_with_keys(local: App, shared: App) -> None:
    """Discriminates: a key that lets any name pass, even one whose address another site points at this
    server; a server that cannot be reached by its address."""
    machine = socket.gethostname()
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert (await status(local, [host]), await status(shared, [host])) == (200, 200)
    for host in ("192.168.1.7:8000", "[fe80::1]", "wenmai.example.org", machine, f"{machine}.local:8000"):
        assert (await status(local, [host]), await status(shared, [host])) == (400, 200)
    for host in ("evil.test", "127.0.0.1.evil.test", "192.168.1.7.nip.io", "localhost.", "0x7f.1.evil"):
        assert (await status(local, [host]), await status(shared, [host])) == (400, 400)


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.test", "x", "http://127.0.0.1:9"])
async def test_an_origin_that_is_not_a_url_is_another_site(local: App, origin: str) -> None:
    """Discriminates: an address that cannot be parsed, which was a 500."""
    response = await local.client.post("/sessions", json={}, headers={"origin": origin})
    assert response.status_code == 403
    assert (await local.client.post("/sessions", json={}, headers={"origin": "http://127.0.0.1"})).is_success


async def test_a_refused_method_gets_every_method_of_its_path(local: App) -> None:
    """Discriminates: the methods of the first route that has the path."""
    spec = (await local.client.get("/openapi.json")).json()
    incomplete = []
    for path, operations in spec["paths"].items():
        response = await local.client.request("TRACE", path.replace("{", "").replace("}", ""))
        allowed = set(response.headers["allow"].split(", ")) - {"HEAD"}  # never described
        if (response.status_code, allowed) != (405, {method.upper() for method in operations}):
            incomplete.append((path, response.status_code, allowed))
    assert incomplete == []
    assert (await local.client.put("/documents")).headers["allow"] == "GET, HEAD, POST"
    response = await local.client.post(f"/turns/{UNKNOWN}")
    assert response.headers["allow"] == "DELETE, GET, HEAD"


async def test_a_slash_at_the_end_changes_nothing_for_programs(shared: App) -> None:
    """Discriminates: a redirect without a body, on which clients lose the question or the key; limits by
    exact path."""
    headers = {"authorization": f"Bearer {KEY}"}
    for path in (CHAT, f"{CHAT}/", f"{CHAT}//"):
        asked = {"question": "What is a walnut?", "stream": False}
        assert (await shared.client.post(path, json=asked, headers=headers)).json()["session_id"], path
    for path in ("/sessions/", "/v1/models/", "/documents/", "/health/live/", "/v1/models/wenmai/"):
        assert (await shared.client.get(path, headers=headers)).status_code == 200, path
    large = await shared.client.post(f"{CHAT}/", content=b"a" * 1_500_000, headers=headers)
    assert large.status_code == 415  # a question may have images
    missing = await shared.client.get("/nothing/", headers=headers)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    page = await shared.client.get("/docs/", headers={"accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["location"].endswith("/docs")) == (307, True)


async def test_a_form_is_refused_where_the_body_is_the_file(local: App) -> None:
    """Discriminates: a form's boundaries and headers stored as the file's text."""
    form = {"file": ("a.md", b"# A\n\nBe brief.")}
    for method, path in (("PUT", "/library/personas/a.md"), ("POST", "/sessions/import/file")):
        response = await local.client.request(method, path, files=form)
        assert response.status_code == 415, path
        assert "--data-binary" in response.json()["error"]["message"]
    assert (await local.client.get("/library")).json()["modules"] == []


async def test_a_missing_parameter_is_named_as_one(local: App) -> None:
    """Discriminates: `missing: kind` to a client that sent it in the body."""
    for body, message in (
        ({}, "missing: kind, a parameter in the address (?kind=…)"),
        (
            {"kind": "owner", "id": "local"},
            "body: this route takes its parameters from the address (?kind=…&id=…), and no body.",
        ),
    ):
        response = await local.client.post("/admin/erase", json=body)
        assert (response.status_code, response.json()["error"]["message"]) == (422, message)


async def test_every_body_names_its_refused_content(local: App) -> None:
    """Discriminates: 415 of a route whose description leaves it out."""
    spec = (await local.client.get("/openapi.json")).json()
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            needed = {"400", "413", "415"} if "requestBody" in operation else {"400"}
            assert needed <= set(operation["responses"]), (method, path)
            if "requestBody" in operation:
                at = path.replace("{", "").replace("}", "")
                headers = {"content-type": "text/csv"}
                response = await local.client.request(method, at, content=b"x", headers=headers)
                assert str(response.status_code) in operation["responses"], (method, path)


SITE = "https://www.example.org"
PROGRAM = "app://obsidian.md"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_to_a_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    server = {"cors_origins": (SITE, PROGRAM)}
    async with open_app(make_settings(tmp_path_factory.mktemp("site"), server=server)) as opened:
        yield opened


async def preflight(app: App, origin: str) -> Response:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    return await app.client.options(CHAT, headers=asked)


def cors_headers(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


async def test_only_a_named_site_may_ask_and_read(local: App, open_to_a_site: App) -> None:
    """Discriminates: a partial match of an origin; errors that the site's own script cannot read."""
    allowed = await preflight(open_to_a_site, SITE)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, SITE)
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    question = {"question": "Well?", "stream": False}
    program = await open_to_a_site.client.post(CHAT, json=question, headers={"origin": PROGRAM})
    assert (program.status_code, program.headers["access-control-allow-origin"]) == (200, PROGRAM)
    for status, body in ((200, question), (422, {"question": 1})):
        response = await open_to_a_site.client.post(CHAT, json=body, headers={"origin": SITE})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, SITE)
        assert (response.headers["vary"], response.headers["access-control-expose-headers"]) == (
            "Origin",
            "*",
        )
        assert "access-control-allow-credentials" not in response.headers
    for origin in (
        f"{SITE}.evil.test",
        f"{SITE}:8443",
        "http://www.example.org",
        "null",
        "app://obsidian.md.evil.test",
        "https://example.org",
    ):
        for app in (local, open_to_a_site):
            refused = await app.client.post(CHAT, json=question, headers={"origin": origin})
            read = await app.client.get("/sessions", headers={"origin": origin})
            for response in (await preflight(app, origin), refused, read):
                assert cors_headers(response) == {}, origin
            assert refused.status_code == 403
    assert (await preflight(local, SITE)).status_code == 403
    assert "vary" not in (await local.client.get("/sessions", headers={"origin": SITE})).headers


async def test_an_agent_of_an_unknown_site_is_refused_with_every_method(local: App) -> None:
    for method in ("GET", "POST", "DELETE"):
        async with asyncio.timeout(10):  # an accepted request may read an endless stream
            response = await local.client.request(method, "/mcp", headers={"origin": "http://evil.test"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden"), method


MEASURED = ("/admin/", "/health/", "/metrics")  # a digit more at the next request


async def test_every_readable_address_answers_head_requests(local: App) -> None:
    """Discriminates: 405, by which monitors and proxies take a running server for one that is down."""
    routes = local.client._transport.app.state.paths  # type: ignore[attr-defined]
    paths = [route.path for route in routes if "GET" in route.methods]
    assert len(paths) > 40
    for path in (path.replace("{", "").replace("}", "") for path in paths):
        async with asyncio.timeout(10):
            head = await local.client.head(path, headers={"accept": "*/*, text/event-stream"})
        read = await local.client.get(path)
        assert (head.status_code, head.content) == (read.status_code, b""), path
        lengths = [response.headers.get("content-length") for response in (read, head)]
        assert lengths[0] == lengths[1] or path.startswith(MEASURED), path
    assert (await local.client.head("/search")).status_code == 405
    assert (await local.client.post("/docs")).headers["allow"] == "GET, HEAD"


async def test_the_head_of_a_stream_does_not_wait_for_its_end(tmp_path: Path) -> None:
    """Discriminates: a monitor that holds a connection, and counts as a reader, until the answer ends."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("Hel", 60.0, "lo")}})
    turn = {"question": "What is a turn?", "turn_id": UNKNOWN, "knowledge": "never"}
    async with serving(settings) as url, httpx.AsyncClient(base_url=url, timeout=10) as client:
        async with client.stream("POST", CHAT, json=turn) as answer:
            await anext(answer.aiter_bytes())
            for _ in range(2):  # on one connection
                head = await client.head(f"/turns/{UNKNOWN}/stream")
                assert head.headers["content-type"].startswith("text/event-stream")
        assert (await client.post(f"/turns/{UNKNOWN}/stop")).is_success
