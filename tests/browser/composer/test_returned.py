"""Where a question that was edited, refused or stopped, and never reached the server, reappears."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.branches.branching import edit, shows
from tests.browser.composer.composing import BOX, opened, sent_by
from tests.browser.support.driving import ASK, answered, ask

EDITOR = ".question-editor textarea"
BUSY = {"code": "rate_limited", "message": "busy", "retryable": True, "request_id": "r"}


async def refuse(page: Page, *, at_once: bool = False) -> asyncio.Event:
    """From now on questions wait for the event, and are then refused."""
    now = asyncio.Event()
    if at_once:
        now.set()

    async def fulfil(route: Route) -> None:
        await now.wait()
        await route.fulfill(status=429, body=json.dumps({"error": BUSY}), content_type="application/json")

    await page.route(ASK, fulfil)
    return now


async def two_conversations(page: Page, url: str) -> tuple[str, str]:
    """Return both addresses; the first conversation is open then."""
    await opened(page, url)
    await sent_by(page, "of A")
    first = page.url
    await page.click("#sidebar .new-chat")
    await expect(page.locator(".turn")).to_have_count(0)
    await sent_by(page, "of B")
    second = page.url
    await go(page, first, "of A")
    return first, second


async def go(page: Page, address: str, question: str) -> None:
    await page.goto(address)  # the same document: only the fragment differs
    await shows(page, question)


async def holds(page: Page, text: str) -> None:
    await expect(page.locator(BOX)).to_have_value(text)


async def refused_elsewhere(page: Page, second: str, now: asyncio.Event) -> None:
    """Go to the second conversation, and wait there until the refusal has been handled."""
    await go(page, second, "of B")
    async with page.expect_response(ASK):
        now.set()
    await page.wait_for_timeout(500)  # time for a late reply to be shown


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_refused_edit_is_in_the_box_of_its_own_conversation(page: Page, bare_url: str) -> None:
    """Discriminates: returned to whichever conversation is open; lost at a reload."""
    first, second = await two_conversations(page, bare_url)
    now = await refuse(page)
    await edit(page, 1, "of A, edited")
    await expect(page.locator(".turn")).to_have_attribute("data-status", "running")
    await refused_elsewhere(page, second, now)
    await holds(page, "")
    await go(page, first, "of A")
    await holds(page, "of A, edited")
    await page.reload()
    await holds(page, "of A, edited")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_refused_regeneration_returns_nothing_to_the_box(page: Page, bare_url: str) -> None:
    """Discriminates: the question that is in the conversation put into a box."""
    first, second = await two_conversations(page, bare_url)
    now = await refuse(page)
    await page.hover(".turn")
    await page.click(".turn .regenerate")
    await expect(page.locator(".turn")).to_have_attribute("data-status", "running")
    await refused_elsewhere(page, second, now)
    await holds(page, "")
    await go(page, first, "of A")
    await holds(page, "")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_edit_abandoned_by_switching_or_reload_is_in_its_conversations_box(
    page: Page, bare_url: str
) -> None:
    """Discriminates: the editor's text lost with the editor; an unchanged or cancelled edit kept."""
    first, second = await two_conversations(page, bare_url)
    for close in ("Escape", ""):
        await page.press(BOX, "ArrowUp")
        await page.fill(EDITOR, "cancelled" if close else "of A")
        await (page.press(EDITOR, close) if close else go(page, second, "of B"))
    await go(page, first, "of A")
    await holds(page, "")
    await page.press(BOX, "ArrowUp")
    await page.fill(EDITOR, "half edited")
    await go(page, second, "of B")
    await holds(page, "")
    await page.press(BOX, "ArrowUp")
    await page.fill(EDITOR, "before a reload")
    await page.reload()
    await holds(page, "before a reload")
    await go(page, first, "of A")
    await holds(page, "half edited")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_conversation_that_arrives_late_leaves_the_address_of_the_next_one(
    page: Page, bare_url: str
) -> None:
    """Discriminates: its own address written over the one just chosen, whose event then changes nothing."""
    first, second = await two_conversations(page, bare_url)
    sessions, now = page.url.split("#/s/")[0], asyncio.Event()

    async def late(route: Route) -> None:
        await now.wait()
        await route.continue_()

    await page.route(f"{sessions}sessions/{second.split('/s/')[1]}/**", late)
    await page.goto(second)
    await page.evaluate("(address) => history.pushState(null, '', address)", first)  # no event yet
    async with page.expect_response(lambda response: second.split("/s/")[1] in response.url):
        now.set()
    await shows(page, "of B")
    assert page.url == first
    await page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    await shows(page, "of A")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_returned_question_leaves_the_box_when_it_is_retried(page: Page, bare_url: str) -> None:
    """Discriminates: removed only when it is answered; lost when refused again."""
    await opened(page, bare_url)
    await sent_by(page, "first")
    await refuse(page, at_once=True)
    await ask(page, "busy?")
    await holds(page, "busy?")
    await page.unroute(ASK)
    now = await refuse(page)
    await page.click(".error-card .retry")
    await holds(page, "")
    await answered(page, 2, "running")
    now.set()
    await answered(page, 2, "failed")
    await holds(page, "busy?")


async def test_a_question_stopped_before_the_server_got_it_is_back(page: Page, bare_url: str) -> None:
    """Discriminates: returned for a failed turn only."""
    await opened(page, bare_url)
    await sent_by(page, "first")
    await page.route(
        "**/*", lambda route: route.abort() if route.request.method == "POST" else route.fallback()
    )
    await ask(page, "never sent")
    await answered(page, 2, "running")
    await page.keyboard.press("Escape")
    await answered(page, 2, "cancelled")
    await holds(page, "never sent")
