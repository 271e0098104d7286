"""The widget on the pages of two other sites, one of which is named in CORS_ORIGINS."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.async_api import Page, expect

from routes.web.page import WEB
from tests.support.models.stub_llm import StubLLM
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

KEY = "a-key-of-the-operator"
POLICY = "default-src 'none'; script-src {url}; connect-src {url}"
ANSWER = ("<b>Fifteen</b> days ", "[1].")


@dataclass
class Sites:
    """Two pages with the same widget; `url` is Wenmai's."""

    url: str
    allowed: str
    other: str
    stub: StubLLM


@contextmanager
def listening() -> Iterator[ThreadingHTTPServer]:
    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body: bytes = self.server.page.encode()  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", self.server.policy)  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test's output readable."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, stub_model: StubLLM) -> Iterator[Sites]:
    model = {"OPENAI_BASE_URL": stub_model.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "stub"}
    with listening() as allowed, listening() as other:
        addresses = [f"http://127.0.0.1:{each.server_port}" for each in (allowed, other)]
        keys = {"API_KEYS": KEY, "CORS_ORIGINS": addresses[0], "ROOT_PATH": "/wenmai"}
        with running_server(
            tmp_path_factory.mktemp("widget"), LOAD_SAMPLE="false", EMBEDDING=HASHING, **model, **keys
        ) as server:
            tag = httpx.get(f"{server.url}/wenmai/settings/widget", headers={"x-api-key": KEY}).json()["html"]
            for each in (allowed, other):
                each.page = f'<!doctype html><html lang="en"><body><h1>A shop</h1>{tag}</body></html>'  # type: ignore[attr-defined]
                each.policy = POLICY.format(url=server.url)  # type: ignore[attr-defined]
            yield Sites(server.url, addresses[0], addresses[1], stub_model)


async def ask(page: Page, question: str) -> None:
    await page.get_by_label("Your question").fill(question)
    await page.get_by_label("Your question").press("Enter")


async def test_on_an_allowed_site_visitors_ask_follow_ups_and_read_plain_text(
    page: Page, sites: Sites
) -> None:
    """Discriminates: markup of an answer that becomes the site's; styles that a site's strict policy forbids;
    a history that is lost on the site's next page."""
    sites.stub.words = ANSWER
    await page.goto(sites.allowed)
    await page.get_by_label("Open the chat").click()
    await ask(page, "How many days?")
    answer = page.locator("#wenmai-widget .assistant").first
    await expect(answer).to_have_text("<b>Fifteen</b> days [1].")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await expect(page.locator("#wenmai-widget .panel")).to_have_css("position", "fixed")
    await page.reload()
    await page.get_by_label("Open the chat").click()
    await expect(answer).to_have_text("<b>Fifteen</b> days [1].")
    async with page.expect_response("**/v1/chat/completions") as responded:
        await ask(page, "And after ten years?")
    response = await responded.value
    assert response.headers["access-control-allow-origin"] == sites.allowed
    await expect(page.locator("#wenmai-widget .assistant")).to_have_count(2)
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    sent = sites.stub.raw_bodies[-1].decode()
    assert "How many days?" in sent
    assert "And after ten years?" in sent
    assert KEY not in await page.content()
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Open the chat")).to_be_focused()


async def test_opened_after_a_reload_it_shows_the_end_of_the_last_answer(page: Page, sites: Sites) -> None:
    """Discriminates: a scroll position set while the panel is hidden, and has no height."""
    sites.stub.words = (*("A line of the answer. " for _ in range(80)), "The last words [1].")
    await page.goto(sites.allowed)
    await page.get_by_label("Open the chat").click()
    await ask(page, "How many days?")
    await expect(page.locator("#wenmai-widget .assistant").first).to_contain_text("The last words")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()  # from here on the answer is stored
    await page.reload()
    await page.get_by_label("Open the chat").click()
    log = page.locator("#wenmai-widget .log")
    left = await log.evaluate("(log) => log.scrollHeight - log.clientHeight - log.scrollTop")
    assert await log.evaluate("(log) => log.scrollHeight > log.clientHeight + 100")
    assert left < 2


def test_no_text_becomes_markup_of_the_site() -> None:
    code = (WEB / "widget.js").read_text("utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code) == []


async def test_on_another_site_nothing_is_sent_to_the_model(page: Page, sites: Sites) -> None:
    """Discriminates: a server that answers everyone, and leaves it to the browser to hide the answer."""
    sites.stub.words = ANSWER
    asked = len(sites.stub.raw_bodies)
    await page.goto(sites.other)
    await page.get_by_label("Open the chat").click()
    await ask(page, "How many days?")
    await expect(page.locator("#wenmai-widget .error")).to_have_text(re.compile("not allowed to ask"))
    status = await page.evaluate(
        """(url) => fetch(url, { method: "POST", mode: "no-cors", body: "{}" }).then(({ type }) => type)""",
        f"{sites.url}/wenmai/v1/chat/completions",
    )
    assert status == "opaque"  # sent without a preflight, and refused by the server
    assert len(sites.stub.raw_bodies) == asked
