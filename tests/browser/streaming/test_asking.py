"""A reader asks, asks a follow-up, and returns later: on the real server with the sample guide."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.documents.panel import document, lists
from tests.browser.support.driving import TURN_ID, answer_with, answered, ask, sse_body

QUESTION = "父子链是什么\uff1f"
SHOWN = "[...document.querySelectorAll('.prose, .sources')].map((node) => node.outerHTML)"


async def test_a_chinese_question_is_answered_with_its_sources(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await ask(page, QUESTION)
    await answered(page)
    assert (await page.inner_text(".prose")).strip()
    card = page.locator(".source").first
    assert (await card.locator(".file").inner_text()).strip()
    assert (await card.locator(".score-number").inner_text()).endswith("%")
    passage = await card.locator(".passage").inner_text()
    await card.locator("summary").click()
    assert (await card.locator("mark").inner_text()).replace("`", "").split() == passage.split()
    assert not await page.is_visible(".thinking")


async def test_a_citation_in_the_answer_opens_its_card(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await ask(page, QUESTION)
    await answered(page)
    cite = page.locator(".cite").first
    number = await cite.inner_text()
    await cite.click()
    await page.wait_for_selector(f".source[data-index='{number}'][open] .source-text")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_follow_up_stays_in_the_session_and_a_reload_shows_the_same(
    page: Page, server_url: str
) -> None:
    await page.goto(server_url)
    await ask(page, QUESTION)
    await answered(page)
    address = page.url
    await ask(page, "它有什么用\uff1f")
    await answered(page, turns=2)
    assert page.url == address
    before = await page.evaluate(SHOWN)
    await page.reload()
    await answered(page, turns=2)
    assert await page.evaluate(SHOWN) == before
    await expect(page.locator(".session.current")).to_have_count(1)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_example_question_can_be_asked_with_one_click(page: Page, server_url: str) -> None:
    await lists(page, [document(sample=True)])
    await page.goto(server_url)
    await page.click(".example >> nth=0")
    await answered(page)
    assert await page.locator(".turn").count() == 1


@pytest.mark.full("a journey of seconds in a real browser")
async def test_enter_that_ends_an_ime_composition_does_not_send(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await page.fill("#question", "zhongwen")
    await page.dispatch_event("#question", "keydown", {"key": "Enter", "isComposing": True})
    await page.dispatch_event("#question", "keydown", {"key": "Enter", "keyCode": 229})
    assert await page.input_value("#question") == "zhongwen"
    assert await page.locator(".turn").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_phone_shows_a_turn_without_horizontal_scrolling(page: Page, server_url: str) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto(server_url)
    await ask(page, QUESTION)
    await answered(page)
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await page.click("#open-sidebar")
    await page.wait_for_selector("#sessions", state="visible")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_words_follow_the_language_switch(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    assert await page.inner_text("#sidebar .new-chat") == "新对话"
    await page.click("#language")
    assert await page.inner_text("#sidebar .new-chat") == "New conversation"
    await page.reload()
    assert await page.get_attribute("html", "lang") == "en"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_answer_that_hit_its_limit_says_so(page: Page, server_url: str) -> None:
    """Discriminates: showing the duration, as for a complete answer."""
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "completed", "finish_reason": "length"}
    events = [("SESSION", "x"), ("CONTENT", "half a"), ("SOURCE", []), ("STATUS", finished), ("DONE", "")]
    await answer_with(page, sse_body(events))
    await page.goto(server_url)
    await ask(page, QUESTION)
    await answered(page)
    assert "上限" in await page.inner_text(".progress")
