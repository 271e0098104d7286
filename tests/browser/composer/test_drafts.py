"""What a person typed and did not send is never lost."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.composer.composing import BOX, opened, sent_by, session_in
from tests.browser.support.conversations import row
from tests.browser.support.driving import ASK, add_style, answered, ask
from tests.browser.support.profiles import profile

LONG = 50_000
COUNT = "() => (window.__edits = (window.__edits ?? 0) + 1)"


async def holds(page: Page, text: str) -> None:
    await expect(page.locator(BOX)).to_have_value(text, timeout=20_000)


async def refuse(page: Page, status: int, message: str) -> None:
    """Refuse every question from now on."""
    error = {"code": "refused", "message": message, "retryable": status == 503, "request_id": "r"}

    async def fulfil(route: Route) -> None:
        await route.fulfill(status=status, body=json.dumps({"error": error}), content_type="application/json")

    await page.route(ASK, fulfil)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_each_conversation_keeps_its_draft_over_switching_and_reload(
    page: Page, server_url: str
) -> None:
    """Discriminates: the box left unchanged when another conversation is opened."""
    await opened(page, server_url)
    await page.fill(BOX, "一")
    await page.press(BOX, "Enter")
    await page.wait_for_url("**/#/s/*")
    chat = session_in(page)
    await page.fill(BOX, "second, not sent")
    await answered(page)
    assert await page.input_value(BOX) == "second, not sent"
    await page.click("#sidebar .new-chat")
    await holds(page, "")
    await page.fill(BOX, "of the new one")
    await page.reload()
    assert await page.input_value(BOX) == "of the new one"
    await page.click(f"{row(chat)} .session-link")
    await holds(page, "second, not sent")


async def test_a_refused_question_is_back_in_the_box(page: Page, server_url: str) -> None:
    """Discriminates: the box emptied for good when the question is sent."""
    await opened(page, server_url)
    await refuse(page, 422, "filters: too many.")
    await ask(page, "a question of some length")
    await expect(page.locator(BOX)).not_to_have_value("")
    assert await page.input_value(BOX) == "a question of some length"
    await page.press(BOX, "Enter")
    await page.wait_for_selector(".turn:nth-child(2)[data-status=failed]")
    await holds(page, "a question of some length")
    await page.unroute(ASK)
    await page.press(BOX, "Enter")
    await page.wait_for_selector(".turn[data-status=completed]")
    assert await page.input_value(BOX) == ""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_returned_question_leaves_the_box_when_a_retry_answered_it(
    page: Page, server_url: str
) -> None:
    """Discriminates: the question left in the box, to be asked twice."""
    await opened(page, server_url)
    await refuse(page, 503, "busy")
    await ask(page, "busy?")
    await holds(page, "busy?")
    await page.unroute(ASK)
    await page.click(".error-card .retry")
    await answered(page)
    await holds(page, "")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_that_never_arrived_is_still_in_the_box_after_a_reload(
    page: Page, server_url: str
) -> None:
    """Discriminates: a sent question forgotten before the server has it."""
    await opened(page, server_url)
    await sent_by(page, "first")
    await page.route(ASK, lambda route: route.abort())
    await page.route("**/stream?*", lambda route: route.abort())
    async with page.expect_event("requestfailed"):
        await ask(page, "lost on the way")
    await page.reload()
    await holds(page, "lost on the way")
    await page.unroute(ASK)
    await page.press(BOX, "Enter")
    await answered(page, 2)
    await page.reload()
    await answered(page, 2)
    assert await page.input_value(BOX) == ""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_paste_of_fifty_thousand_characters_is_quick_and_says_how_many_are_too_many(
    page: Page, server_url: str
) -> None:
    await opened(page, server_url)
    await page.evaluate(
        "n => document.querySelector('#question').value = '字。'.repeat(n / 2)", LONG
    )  # as a paste leaves it; the event below follows
    took = await page.evaluate(
        "() => { const box = document.querySelector('#question'); const took = []; let began;"
        "for (let i = 0; i < 21; i += 1) { began = performance.now();"
        "  box.dispatchEvent(new InputEvent('input', { bubbles: true }));"
        "  took.push(performance.now() - began); }"
        "return took.sort((one, other) => one - other)[10]; }"
    )  # the median: a machine that stalls for a moment does so within one of them
    assert took < 30, f"{took:.1f} ms for each key"
    assert await page.inner_text("#hint") == "已超出 42000 个字\uff0c最多 8000 个"
    hint = page.locator("#hint")
    await hint.evaluate("(node) => (node.style.maxWidth = '7em')")  # many switches beside it
    assert await hint.evaluate(
        "(node) => node.scrollWidth <= node.clientWidth && node.scrollHeight <= node.clientHeight"
    )
    assert await page.is_disabled(".send")
    await page.reload()
    assert len(await page.input_value(BOX)) == LONG


async def test_the_arrow_in_an_empty_box_recalls_the_last_question(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.evaluate(f"part('base/bus.js').then((bus) => bus.subscribe('edit-last', {COUNT}))")
    await page.fill(BOX, "text")
    await page.press(BOX, "ArrowUp")
    assert await page.evaluate("window.__edits ?? 0") == 0
    await page.fill(BOX, "")
    await page.press(BOX, "ArrowUp")
    assert await page.evaluate("window.__edits") == 1


@pytest.mark.full("a journey of seconds in a real browser")
async def test_at_320_pixels_nothing_overflows_and_every_target_fits_a_finger(
    browser: Browser, server_url: str
) -> None:
    context = await profile(
        browser, locale="en-US", viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True
    )
    phone = await context.new_page()
    await opened(phone, server_url)
    await phone.fill(BOX, "/")
    assert await phone.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    small = "[...document.querySelectorAll('#dock button, #dock select, #dock [role=option]')]"
    small += ".filter((node) => node.offsetHeight && node.offsetHeight < 40).map((node) => node.outerHTML)"
    assert await phone.evaluate(small) == []
    await phone.fill(BOX, "")
    await phone.tap("#search-settings-button")
    assert await phone.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await context.close()


async def test_the_hint_beside_many_switches_is_shown_whole_or_not_at_all(
    page: Page, server_url: str
) -> None:
    """Discriminates: half of its words in a column of two letters, at 200 % zoom or beside the list."""
    await page.goto(server_url)
    hint = page.locator("#hint")
    await expect(hint).to_be_visible()
    await hint.evaluate("(node) => (node.style.maxWidth = '3em')")
    await expect(hint).to_be_hidden()
    await hint.evaluate("(node) => (node.style.maxWidth = '')")
    await expect(hint).to_be_visible()


async def test_the_hint_is_shown_in_a_font_whose_letters_are_taller_than_its_line(
    page: Page, server_url: str
) -> None:
    """Discriminates: the few pixels that Firefox counts for Chinese letters taken for another line."""
    await add_style(page, "#hint { position: relative }")
    await add_style(page, "#hint::after { content: ''; position: absolute; inset: 0 0 -4px }")
    await page.goto(server_url)
    await expect(page.locator("#composer-head")).not_to_be_empty()
    await expect(page.locator("#hint")).to_be_visible()
