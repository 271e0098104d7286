"""What the edge refuses before any route: hosts and origins; and what a refused method is told."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.servers.app import App, make_settings, open_app

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
    """Discriminates: reading the first of two; a bracket left open, which was a 500."""
    assert [await status(app, hosts) for app in (local, shared)] == [400, 400]


async def test_only_names_of_this_server_are_answered_with_keys_too(local: App, shared: App) -> None:
    """Discriminates: a key that lets any name pass, also one whose address another site sets to this server;
    a server that is not reached by its address."""
    machine = socket.gethostname()
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert (await status(local, [host]), await status(shared, [host])) == (200, 200)
    for host in ("192.168.1.7:8000", "[fe80::1]", "wenmai.example.org", machine, f"{machine}.local:8000"):
        assert (await status(local, [host]), await status(shared, [host])) == (400, 200)
    for host in ("evil.test", "127.0.0.1.evil.test", "192.168.1.7.nip.io", "localhost.", "0x7f.1.evil"):
        assert (await status(local, [host]), await status(shared, [host])) == (400, 400)


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.test", "x", "http://127.0.0.1:9"])
async def test_an_origin_that_is_no_url_is_another_site(local: App, origin: str) -> None:
    """Discriminates: an address that cannot be parsed, which was a 500."""
    response = await local.client.post("/sessions", json={}, headers={"origin": origin})
    assert response.status_code == 403
    assert (await local.client.post("/sessions", json={}, headers={"origin": "http://127.0.0.1"})).is_success


async def test_a_refused_method_is_told_every_method_of_its_path(local: App) -> None:
    """Discriminates: the methods of the first route that has the path."""
    spec = (await local.client.get("/openapi.json")).json()
    incomplete = []
    for path, operations in spec["paths"].items():
        response = await local.client.request("TRACE", path.replace("{", "").replace("}", ""))
        allowed = set(response.headers["allow"].split(", "))
        if (response.status_code, allowed) != (405, {method.upper() for method in operations}):
            incomplete.append((path, response.status_code, allowed))
    assert incomplete == []
    assert (await local.client.put("/documents")).headers["allow"] == "GET, POST"
    response = await local.client.post(f"/turns/{UNKNOWN}")
    assert response.headers["allow"] == "DELETE, GET"


async def test_every_body_names_what_is_refused_of_it(local: App) -> None:
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
