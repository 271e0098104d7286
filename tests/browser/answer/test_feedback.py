"""A reader rates an answer: the server stores the rating, and the page never shows one that is not stored."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route, ViewportSize, expect

from tests.browser.branches.branching import ask_all, ids
from tests.browser.support.conversations import answered_with, choose
from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live

NEXT = "港口什么时候结冰\uff1f"
FEEDBACK = "**/turns/*/feedback"
UP, DOWN = "有帮助", "没有帮助"


def stored(live: Live, turn: str) -> dict[str, Any] | None:
    reply: dict[str, Any] = httpx.get(f"{live.url}/turns/{turn}").json()
    return reply.get("feedback")


def rate(live: Live, turn: str, body: dict[str, str]) -> None:
    httpx.put(f"{live.url}/turns/{turn}/feedback", json=body).raise_for_status()


async def expect_pressed(page: Page, *, up: bool = False, down: bool = False) -> None:
    for name, state in ((UP, up), (DOWN, down)):
        button = page.locator(f".turn:first-child .rate[title='{name}']")
        await expect(button).to_have_attribute("aria-pressed", str(state).lower())


async def press(page: Page, name: str) -> None:
    """Returns when the server has answered."""
    await page.hover(".turn:first-child")
    async with page.expect_response(FEEDBACK):
        await page.click(f".turn:first-child .rate[title='{name}']")


async def answer_one(page: Page, live: Live) -> str:
    live.says("十二个小时 [1]。")
    await page.goto(live.url)
    await ask_all(page, QUESTION)
    [turn] = await ids(page)
    return turn


async def test_a_thumb_is_stored_changed_and_removed_and_a_reload_shows_it(page: Page, live: Live) -> None:
    """Discriminates: a thumb that only the page knows; both pressed at once; a second press that sends the
    same again."""
    turn = await answer_one(page, live)
    await expect_pressed(page)
    await press(page, UP)
    await expect_pressed(page, up=True)
    assert stored(live, turn) == {"rating": "up", "comment": ""}
    await page.reload()
    await answered(page)
    await expect_pressed(page, up=True)
    await press(page, DOWN)
    await expect_pressed(page, down=True)
    assert stored(live, turn) == {"rating": "down", "comment": ""}
    await press(page, DOWN)
    await expect_pressed(page)
    assert stored(live, turn) is None
    await page.reload()
    await answered(page)
    await expect_pressed(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_comment_made_elsewhere_outlives_the_thumb(page: Page, live: Live) -> None:
    """Discriminates: an empty comment sent in place of one that the page does not show."""
    turn = await answer_one(page, live)
    body = {"rating": "down", "comment": "漏了冬天"}
    rate(live, turn, body)
    await page.reload()
    await answered(page)
    await expect_pressed(page, down=True)
    await press(page, DOWN)
    assert stored(live, turn) == {"rating": None, "comment": "漏了冬天"}


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_thumb_that_could_not_be_stored_is_released_and_explained(page: Page, live: Live) -> None:
    """Discriminates: a button left pressed; a failure without a message."""
    turn = await answer_one(page, live)
    await press(page, UP)
    await page.route(FEEDBACK, lambda route: route.fulfill(status=503, json={"error": {"code": "x"}}))
    await press(page, DOWN)
    await answered_with(page, "评价没有存下。服务器正忙")
    await expect_pressed(page, up=True)
    await page.unroute(FEEDBACK)
    await page.route(FEEDBACK, lambda route: route.abort())
    await page.click(f".rate[title='{DOWN}']")
    await answered_with(page, "评价没有存下。连不上服务器")
    await expect_pressed(page, up=True)
    assert stored(live, turn) == {"rating": "up", "comment": ""}


async def test_a_press_during_a_request_is_sent_after_it(page: Page, live: Live) -> None:
    """Discriminates: two requests at once, of which the older may be stored last."""
    turn = await answer_one(page, live)
    waiting: list[Route] = []
    await page.route(FEEDBACK, lambda route: waiting.append(route))
    for name in (UP, DOWN, UP, DOWN):
        await page.click(f".rate[title='{name}']")
    await expect_pressed(page, down=True)
    for count in (1, 2):
        while len(waiting) < count:
            await page.wait_for_timeout(20)
        assert len(waiting) == count
        async with page.expect_response(FEEDBACK):
            await waiting[-1].continue_()
    ratings = [json.loads(route.request.post_data or "")["rating"] for route in waiting]
    assert ratings == ["up", "down"]
    await expect_pressed(page, down=True)
    assert stored(live, turn) == {"rating": "down", "comment": ""}


@pytest.mark.full("a journey of seconds in a real browser")
async def test_only_answers_are_rated_and_a_regenerated_answer_has_no_rating(page: Page, live: Live) -> None:
    """Discriminates: thumbs at a command, a failed turn, a running one; a version that inherits the
    rating."""
    await answer_one(page, live)
    await press(page, UP)
    await ask(page, "/help")
    await answered(page, 2)
    live.says("字", status=400)
    await ask(page, NEXT)
    await answered(page, 3, "failed")
    for turn in (2, 3):
        assert await page.locator(f".turn:nth-child({turn}) .rate:not([hidden])").count() == 0
    live.says(*["字"] * 400, pause_s=0.03)
    await page.hover(".turn:nth-child(1)")
    await page.click(".turn:nth-child(1) .regenerate")
    await page.locator(".turn:nth-child(1)[data-status=running] .prose", has_text="字字").wait_for()
    assert await page.locator(".rate:not([hidden])").count() == 0
    await page.keyboard.press("Escape")
    await answered(page, status="cancelled")
    assert await page.locator(".rate:not([hidden])").count() == 2
    await expect_pressed(page)
    await press(page, DOWN)
    await expect_pressed(page, down=True)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_on_a_small_phone_a_turn_of_two_versions_is_rated_in_its_menu(page: Page, live: Live) -> None:
    """Discriminates: a thumb that the narrow row drops without another place for it."""
    await page.set_viewport_size(ViewportSize(width=320, height=700))
    await answer_one(page, live)
    await page.click(".turn-more")
    await choose(page, "重新回答")
    await page.locator(".version-count", has_text="2/2").wait_for()
    await answered(page)
    await page.click(".turn-more")
    async with page.expect_response(FEEDBACK):
        await choose(page, "没有帮助")
    await page.click(".turn-more")
    assert await page.locator(".menu-item[aria-checked=true]").all_inner_texts() == [DOWN]
    [turn] = await ids(page)
    assert stored(live, turn) == {"rating": "down", "comment": ""}
