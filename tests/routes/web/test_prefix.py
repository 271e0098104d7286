"""Below a reverse proxy's prefix: the page and its files, the API, its reference, links; whether or not the
proxy strips the prefix before it forwards a request."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit

import pytest
import pytest_asyncio

from routes.web.page import WEB
from tests.support.servers.app import CHAT, App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "/tools/wenmai"
IMPORT = re.compile(r'(?:from|import)\s*\(?\s*"([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    server = {"root_path": PREFIX, "max_upload_bytes": 2_000_000}
    async with open_app(make_settings(tmp_path_factory.mktemp("prefix"), server=server)) as opened:
        yield opened


@pytest.fixture(params=[PREFIX, ""], ids=["kept", "taken_away"])
def passed_on(request: pytest.FixtureRequest) -> str:
    """The part of the prefix that reaches the server."""
    return str(request.param)


async def test_every_file_that_the_pages_name_is_below_the_prefix(app: App, passed_on: str) -> None:
    """Discriminates: one address with a leading slash, in HTML or in a script."""
    for page in ("/", "/docs"):
        html = (await app.client.get(passed_on + page)).text
        links = {
            link for link in re.findall(r'(?:href|src)="([^"#]+)"', html) if not link.startswith("data:")
        }
        files = {urljoin(PREFIX + page, link) for link in links}
        assert len(files) > 3
        for file in files:
            assert file.startswith(f"{PREFIX}/"), file
            answer = await app.client.get(passed_on + file.removeprefix(PREFIX))
            assert answer.status_code == 200, file
            for name in IMPORT.findall(answer.text) if file.endswith(".js") else ():
                assert urljoin(file, name).startswith(f"{PREFIX}/web/"), (file, name)
    absolute = r"""(?:fetch|open|import)\(\s*(?:"\w+",\s*)?["'`]/"""
    scripts = [file for file in WEB.rglob("*.js") if "node_modules" not in file.parts]
    assert [file.name for file in scripts if re.search(absolute, file.read_text("utf-8"))] == []


async def test_the_api_answers_below_it_and_names_it(app: App, passed_on: str) -> None:
    """Discriminates: errors below /v1 or upload limits that are matched by the raw path."""
    asked = (
        await app.client.post(passed_on + CHAT, json={"question": "What is a walnut?", "stream": False})
    ).json()
    link = await app.client.post(f"{passed_on}/sessions/{asked['session_id']}/shares", json={})
    url = link.json()["url"]
    assert urlsplit(url).path.startswith(f"{PREFIX}/shared/")
    opened = await app.client.get(passed_on + urlsplit(url).path.removeprefix(PREFIX))
    assert "What is a walnut?" in opened.text
    spec = (await app.client.get(f"{passed_on}/openapi.json")).json()
    assert spec["servers"] == [{"url": PREFIX}]
    unknown = await app.client.get(f"{passed_on}/v1/models/none")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "invalid_request_error")
    file = {"file": ("large.md", b"a" * 1_500_000)}
    assert (await app.client.post(f"{passed_on}/documents", files=file)).status_code in (200, 201, 202)
    large = await app.client.post(f"{passed_on}/search", content=b"a" * 1_500_000)
    assert large.status_code == 413
    assert (await app.client.put(f"{passed_on}/documents")).headers["allow"] == "GET, HEAD, POST"


async def test_a_redirect_stays_below_it(app: App) -> None:
    """The page's addresses are relative: without the trailing slash they would lead beside it."""
    assert (await app.client.get(f"{PREFIX}/sessions/")).status_code == 200
    for path in (PREFIX, f"{PREFIX}/docs/", "/docs/"):
        answer = await app.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 307
        assert urlsplit(answer.headers["location"]).path in (f"{PREFIX}/", f"{PREFIX}/docs")


async def test_a_path_that_only_begins_like_it_is_not_below_it(app: App) -> None:
    assert (await app.client.get(f"{PREFIX}-other/sessions")).status_code == 404
