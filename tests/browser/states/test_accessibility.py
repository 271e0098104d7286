"""axe checks every state of the page; what it calls serious or critical is a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from tests.browser.support.conversations import import_session
from tests.browser.support.driving import ASK, answer_with, answered, ask, citation, whole_turn
from tests.browser.support.profiles import profile

OPEN_ALL = "document.querySelectorAll('.thinking, .source, .uncited').forEach((part) => (part.open = true))"
Reach = Callable[[Page], Awaitable[object]]
ANSWER = (
    "## 标题\n\n一段话 [1]。\n\n| 甲 | 乙 |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n> 引文\n"
)
Scheme = Literal["light", "dark"]
FORMS: dict[str, tuple[str, Scheme, int, bool]] = {
    "wide, light, zh": ("zh-CN", "light", 1240, False),
    "phone, dark, en": ("en-US", "dark", 390, True),
}


async def welcome(page: Page) -> None:
    await page.wait_for_selector("#theme .icon", state="attached")


async def conversation(page: Page) -> None:
    """Its thinking and its sources are open."""
    before = [("THINK", "先想一想。")]
    sources = [citation(1), citation(2, cited=False)]
    await answer_with(page, whole_turn(ANSWER, sources=sources, before=before))
    await ask(page, "父子链是什么\uff1f")
    await answered(page)
    await page.evaluate(OPEN_ALL)
    await page.wait_for_selector(".source-text")


async def failed(page: Page) -> None:
    error = {"code": "unknown_model", "message": "model_id: no such model.", "request_id": "r"}
    await page.route(ASK, lambda route: route.fulfill(status=404, json={"error": error}))
    await ask(page, "父子链是什么\uff1f")
    await answered(page, status="failed")


async def documents(page: Page) -> None:
    await open_drawer(page)
    await page.click("#sidebar .open-documents")
    await page.wait_for_selector("#documents .document")


async def prompt(page: Page) -> None:
    """A stored turn has its request; the answer is the server's own."""
    await ask(page, "父子链是什么\uff1f")
    await answered(page)
    await page.locator(".show-prompt").first.evaluate("(button) => button.click()")
    await page.wait_for_selector(".prompt-dialog .prompt-part")


async def turn_buttons(page: Page) -> None:
    """One thumb is pressed; a phone shows the others in the turn's menu."""
    await ask(page, "父子链是什么\uff1f")
    await answered(page)
    await page.hover(".turn")
    await page.click(".rate >> nth=0")
    await page.wait_for_selector(".rate[aria-pressed=true]")
    if await page.is_visible(".turn-more"):
        await page.click(".turn-more")
        await page.wait_for_selector(".menu")


async def session_menu(page: Page) -> None:
    await open_drawer(page)
    await page.wait_for_selector(".session")
    await page.locator(".row-menu").first.evaluate("(button) => button.click()")
    await page.wait_for_selector(".menu")


async def theme_menu(page: Page) -> None:
    await open_drawer(page)
    await page.click("#theme")


async def keys(page: Page) -> None:
    await open_drawer(page)
    await page.click("#keys")


async def confirmation(page: Page) -> None:
    await session_menu(page)
    await page.click(".menu-item.danger")
    await page.wait_for_selector(".small-dialog")


async def no_violations(page: Page) -> None:
    await open_drawer(page)
    await page.fill(
        "#session-search", "xyzzy"
    )  # a refusal of another test says 标题, and answers are searched
    await page.wait_for_selector("#sessions > p")


async def library(page: Page) -> None:
    """The card of an item; the library belongs to this test."""
    modules = {"modules": [{"name": "客服", "batches": 1}], "problems": ["a.md: it contains no items."]}
    items = {"items": [{"title": "售前", "content": "你是顾问。", "variables": []}], "next": None}
    await page.route("**/library", lambda route: route.fulfill(json=modules))
    await page.route(
        "**/library/*", lambda route: route.fulfill(json={"batches": [{"batch_name": "人设", "items": 1}]})
    )
    await page.route("**/library/*/*", lambda route: route.fulfill(json=items))
    await ask(page, "/library")
    for name in ("客服", "人设", "售前"):
        await page.click(f".library-entry:has-text('{name}')")
    await page.wait_for_selector(".library-text")


async def library_modules(page: Page) -> None:
    await library(page)
    await page.click(".library-path button >> nth=0")
    await page.click(".library-problems summary")


async def open_drawer(page: Page) -> None:
    if await page.is_visible("#open-sidebar"):
        await page.click("#open-sidebar")


STATES: list[Reach] = [
    welcome, conversation, failed, documents, prompt, turn_buttons,
    session_menu, theme_menu, keys, confirmation, no_violations, library, library_modules,
]  # fmt: skip


@pytest.fixture(scope="module")
def listed_url(server_url: str) -> str:
    import_session(server_url, "列表里的一个对话", turns=2)
    import_session(server_url, "保留着的对话", hold=True)
    return server_url


@pytest_asyncio.fixture(loop_scope="session", params=FORMS)
async def reader(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    """Without animations: axe would measure a colour half-way through its transition."""
    locale, scheme, width, touch = FORMS[request.param]
    context = await profile(
        browser, locale=locale, color_scheme=scheme, viewport={"width": width, "height": 800},
        has_touch=touch, is_mobile=touch, reduced_motion="reduce",
    )  # fmt: skip
    yield await context.new_page()
    await context.close()


EACH_STATE = "every state of the page, in each look, is searched for faults"


@pytest.mark.parametrize(
    "reach",
    [STATES[0], *(pytest.param(state, marks=pytest.mark.full(EACH_STATE)) for state in STATES[1:])],
    ids=[state.__name__ for state in STATES],
)
async def test_axe_finds_no_serious_fault(reader: Page, listed_url: str, reach: Reach) -> None:
    """Discriminates: a button without a name; --ink-faint a shade lighter; a menu of paragraphs."""
    await reader.goto(listed_url)
    await welcome(reader)
    await reach(reader)
    await reader.wait_for_timeout(100)  # colour transitions have ended
    assert await faults(reader) == []


async def faults(page: Page) -> list[str]:
    """Each fault with the first nodes that have it, and axe's measurement there."""
    results = await Axe().run(page)
    return [
        f"{fault['id']} ({fault['impact']}) {node['target']} {node.get('failureSummary', '')[:200]}"
        for fault in results.response["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]
