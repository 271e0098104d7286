"""The page's files and their headers; and no upload is ever served as a page of ours."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from httpx import Response

from routes.web import page
from routes.web.page import VENDOR, WEB
from tests.support.servers.app import App, make_settings, open_app

HOSTILE = b"<!doctype html><html><body><svg onload=alert(1)><h1>Refunds</h1><p>Refunds take three days.</p>"
UPLOADS = (
    *("page.html", "page.htm", "page.xhtml", "page.mhtml", "page.md", "page.txt", "x.html.txt"),
    *("image.svg", "feed.xml", "run.js", "style.css", "page.pdf", "data.json"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: the page's files are the same whatever was uploaded."""
    async with open_app(make_settings(tmp_path_factory.mktemp("files"))) as opened:
        yield opened


def policy(response: Response) -> dict[str, str]:
    rules = response.headers["content-security-policy"].split("; ")
    return {name: rest for name, _, rest in (rule.partition(" ") for rule in rules)}


def files() -> list[str]:
    own = [
        file.relative_to(WEB).as_posix()
        for file in WEB.rglob("*.*")
        if "node_modules" not in file.parts and file.suffix in (".js", ".css", ".svg")
    ]
    vendor = [f"vendor/{name}" for name, file in VENDOR.items() if file.is_file()]
    return [f"/web/{page.files().version}/{name}" for name in (*own, *vendor) if name != "widget.js"]


async def test_every_file_of_the_page_carries_the_policy(app: App) -> None:
    """Discriminates: a file served past `_serve`."""
    for path in ("/", "/docs", *files()):
        response = await app.client.get(path)
        assert response.status_code == 200, path
        rules = policy(response)
        assert (
            rules["default-src"]
            == rules["script-src"]
            == rules["style-src"]
            == rules["connect-src"]
            == "'self'"
        )
        for name in ("object-src", "base-uri", "frame-ancestors", "frame-src", "form-action", "worker-src"):
            assert rules[name] == "'none'", name
        assert rules["require-trusted-types-for"] == "'script'"
        assert rules["trusted-types"] == "dompurify"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert "geolocation=()" in response.headers["permissions-policy"]


async def test_browsers_cache_the_files_forever_and_revalidate_the_page(app: App) -> None:
    """Discriminates: a file that each reload downloads again; a page that is cached beyond an upgrade."""
    for path in files():
        assert "immutable" in (await app.client.get(path)).headers["cache-control"], path
    for path in ("/", "/docs", "/widget.js"):
        first = await app.client.get(path)
        again = await app.client.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path
        assert first.headers["cache-control"] == again.headers["cache-control"] == "no-cache"
        other = await app.client.get(path, headers={"If-None-Match": '"0123456789abcdef"'})
        assert other.content == first.content != b""
    html = (await app.client.get("/")).text
    assert set(re.findall(r'"web/(\w+)/', html)) == {page.files().version}


async def test_the_files_are_compressed_for_clients_that_accept_it(app: App) -> None:
    """Discriminates: a first visit that takes nearly twice as long; a cache that serves compressed files to
    others."""
    whole = packed = 0
    for path in ("/", *files()):
        plain = await app.client.get(path, headers={"Accept-Encoding": "identity, gzip; q=0"})
        zipped = await app.client.get(path, headers={"Accept-Encoding": "br, gzip"})
        assert "content-encoding" not in plain.headers
        assert plain.content == zipped.content, path
        assert plain.headers["vary"] == zipped.headers["vary"] == "Accept-Encoding"
        whole += int(plain.headers["content-length"])
        packed += int(zipped.headers["content-length"])
    assert packed < 0.45 * whole


async def test_a_page_loading_during_an_upgrade_gets_the_current_files_uncached(
    app: App,
) -> None:
    """Discriminates: 404 below the previous version; new files that are cached below the old address."""
    old = await app.client.get("/web/0123456789abcdef/js/app.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert old.content == (WEB / "js/app.js").read_bytes()


def test_one_changed_byte_is_another_version() -> None:
    """Discriminates: a version of names only, below which browsers would keep the previous file."""
    before = {"js/app.js": b"1", "css/base.css": b""}
    assert page.version_of(before) == page.version_of({**before})
    assert page.version_of(before) != page.version_of({**before, "js/app.js": b"2"})


async def test_no_policy_allows_code_from_a_text_or_another_origin(app: App) -> None:
    text = (await app.client.get("/")).headers["content-security-policy"]
    assert not [word for word in ("unsafe", "http", "*", "blob:", "strict-dynamic") if word in text]


NO_FILES = (
    "/web/0/package.json",
    "/web/0/node_modules/marked/package.json",
    "/web/0/vendor/x.js",
    "/web/0/../../app.py",
    "/web/0/%2e%2e/%2e%2e/app.py",
    "/web/0/js/..%2f..%2f..%2f..%2fpyproject.toml",
    "/web/0//etc/passwd",
    "/web/0/js/app.js%00.js",
    "/web/0/js",
    "/web/0/",
    "/web/0",
    "/web/",
    "/web/js/app.js",
    "/web/0/%5c..%5capp.py",
)


async def test_what_is_not_a_file_of_the_page_is_not_found(app: App) -> None:
    for path in NO_FILES:
        response = await app.client.get(path)
        assert response.status_code == 404, path
        assert response.headers["content-type"] == "application/json"


def inert(response: Response) -> bool:
    """A browser that is led there shows data or saves a file; it never renders it as our document."""
    kind = response.headers["content-type"].partition(";")[0]
    saved = response.headers.get("content-disposition", "").startswith("attachment")
    named = response.headers["x-content-type-options"] == "nosniff"
    return named and (saved or kind in ("application/json", "text/event-stream"))


async def test_no_route_serves_an_upload_as_a_document(app: App) -> None:
    """Discriminates: a media type derived from the file's extension on any route that returns a document."""
    added = [one for name in UPLOADS if (one := await accepted(app, name))]
    asked = await app.ask("How long do refunds take?")
    session = f"/sessions/{asked.session_id}"
    turn = f"/turns/{asked.finished['turn_id']}"
    rests = ("", "/chunks", ".html", "/file", "/content")
    documents = [f"/documents/{one}{rest}" for one in added for rest in rests]
    sessions = [
        f"{session}{rest}" for rest in ("", "/turns", "/tree", "/export?format=md", "/export?format=json")
    ]
    turns = [f"{turn}{rest}" for rest in ("", "/prompt", "/stream")]
    assert len(added) >= 5
    for path in ("/documents", "/jobs", "/sessions", *documents, *sessions, *turns):
        assert inert(await app.client.get(path)), path
    assert inert(await app.client.post("/search", json={"query": "refunds"}))


async def accepted(app: App, name: str) -> str | None:
    """The document's id; None if that kind of file is refused on upload."""
    response = await app.client.post("/documents", files={"file": (name, HOSTILE + name.encode())})
    assert inert(response)
    if response.status_code in (415, 422):
        return None
    await app.container.knowledge.wait(response.json()["job_id"], ["local"])
    return str(response.json()["document"]["document_id"])
