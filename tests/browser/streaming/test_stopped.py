"""A stopped answer stays in its place: the next question continues from it, now and after a reload."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.branches.branching import ids, sent_by, shows, shows_version
from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live

NEXT, LAST = "港口什么时候结冰\uff1f", "还有呢\uff1f"
PARTS = ".asked, .prose, .source-box"
SHOWN = f"[...document.querySelectorAll('{PARTS}')].map((node) => node.outerHTML)"
STORED = """async (turn) => {
  const { readTurn } = await part("api/turns.js");
  return (await readTurn(turn)).answer;
}"""


async def stop_mid_answer(page: Page, live: Live, question: str, turns: int = 1) -> None:
    live.says(*["半句"] * 400, pause_s=0.03)
    await ask(page, question)
    await page.locator(f".turn:nth-child({turns}) .prose", has_text="半句半句").wait_for()
    await page.keyboard.press("Escape")
    await answered(page, turns, "cancelled")


async def stop_before_a_word(page: Page, live: Live, question: str, turns: int = 1) -> None:
    live.says("太晚", pause_s=20)
    before = len(live.stub.bodies)
    await ask(page, question)
    await page.wait_for_selector(f".turn:nth-child({turns})[data-status=running]")
    while len(live.stub.bodies) == before:
        await page.wait_for_timeout(20)  # between two polls
    await page.keyboard.press("Escape")
    await answered(page, turns, "cancelled")


async def stored_answer(page: Page, turn: str) -> str:
    reply: str = await page.evaluate(STORED, turn)
    return reply


async def test_the_next_question_follows_a_stopped_answer_and_a_reload_shows_the_same(
    page: Page, live: Live
) -> None:
    """Discriminates: a stopped turn that does not become the parent, so that the next question takes its
    place."""
    await page.goto(live.url)
    sent = sent_by(page)
    await stop_mid_answer(page, live, QUESTION)
    live.says("冬天 [1]。")
    await ask(page, NEXT)
    await answered(page, 2)
    await page.wait_for_selector(".turn:nth-child(2) .source")
    [stopped, after] = await ids(page)
    assert [body.get("parent_turn_id", "unsaid") for body in sent] == ["unsaid", stopped]
    prompt = live.stub.bodies[-1]["messages"]
    half = await stored_answer(page, stopped)
    assert half.startswith("半句半句")
    assert [each["content"] for each in prompt if each["role"] == "assistant"] == [half]
    assert await page.is_visible("#branches") is False
    before = await page.evaluate(SHOWN)
    await page.reload()
    await shows(page, QUESTION, NEXT)
    await page.wait_for_selector(".turn:nth-child(2) .source")
    assert await ids(page) == [stopped, after]
    for number, html in enumerate(before):  # drawn some frames after the turns
        await expect(page.locator(PARTS).nth(number)).to_have_js_property("outerHTML", html)
    assert await page.evaluate(SHOWN) == before
    for turn in (1, 2):
        await shows_version(page, turn, "")
    assert await page.is_visible("#branches") is False


async def test_the_next_question_continues_from_an_answer_that_broke_off(page: Page, live: Live) -> None:
    """Discriminates: a turn that failed after its first words left out: the page shows it above the next
    question, the model does not see it, and a reload loses it."""
    await page.goto(live.url)
    live.says("说到", "一半", cut=True)
    await ask(page, QUESTION)
    await answered(page, 1, "failed")
    live.says("再说完。")
    await ask(page, NEXT)
    await answered(page, 2)
    prompt = live.stub.bodies[-1]["messages"]
    assert [each["content"] for each in prompt if each["role"] == "assistant"] == ["说到一半"]
    before = await ids(page)
    await page.reload()
    await shows(page, QUESTION, NEXT)
    assert await ids(page) == before
    await shows_version(page, 2, "")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_after_a_reload_a_stopped_answer_is_continued_and_a_completed_one_is_left_to_the_server(
    page: Page, live: Live
) -> None:
    """Discriminates: a parent known only to the page that stopped it; one sent for every turn."""
    await page.goto(live.url)
    await stop_mid_answer(page, live, QUESTION)
    await page.reload()
    await shows_cut(page, QUESTION)
    sent = sent_by(page)
    live.says("冬天。")
    await ask(page, NEXT)
    await answered(page, 2)
    [stopped, _] = await ids(page)
    await shows_version(page, 2, "")
    await page.reload()
    await shows(page, QUESTION, NEXT)
    await ask(page, LAST)
    await answered(page, 3)
    await page.reload()
    await shows(page, QUESTION, NEXT, LAST)
    assert [body.get("parent_turn_id", "unsaid") for body in sent] == [stopped, "unsaid"]


async def shows_cut(page: Page, *questions: str) -> None:
    await expect(page.locator(".asked")).to_have_text(list(questions))
    await answered(page, len(questions), "cancelled")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_answer_stopped_before_its_first_word_is_replaced_by_the_next(
    page: Page, live: Live
) -> None:
    """Discriminates: every cancelled turn taken as the parent, with or without text."""
    await page.goto(live.url)
    sent = sent_by(page)
    await stop_mid_answer(page, live, QUESTION)
    await stop_before_a_word(page, live, NEXT, turns=2)
    assert await page.is_visible(".turn:nth-child(2) .continue-here") is False
    live.says("答。")
    await ask(page, LAST)
    await answered(page, 3)
    [stopped, silent, _] = await ids(page)
    assert [body.get("parent_turn_id") for body in sent] == [None, stopped, stopped]
    await shows_version(page, 3, "2/2")
    await page.reload()
    await shows(page, QUESTION, LAST)
    assert (await ids(page))[0] == stopped
    assert silent not in await ids(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_page_reopened_on_an_interrupted_turn_follows_it_only_if_it_has_text(
    page: Page, live: Live
) -> None:
    """A crash cut the answer; it is asked again, and yields nothing. Discriminates: the parent kept."""
    await page.goto(live.url)
    live.says("一。")
    await ask(page, QUESTION)
    await answered(page)
    await stop_mid_answer(page, live, NEXT, turns=2)
    await crash_cut(page)
    await page.reload()
    await page.wait_for_selector(".turn:nth-child(2)[data-status=interrupted] .error-card .retry")
    [first, cut] = await ids(page)
    assert await page.is_enabled(".turn:nth-child(1) .continue-here")
    await stop_again_before_a_word(page, live)
    sent = sent_by(page)
    live.says("答。")
    await ask(page, LAST)
    await answered(page, 3)
    assert [body["parent_turn_id"] for body in sent] == [first]
    assert cut in await ids(page)


async def crash_cut(page: Page) -> None:
    """The stored turns say interrupted instead of cancelled."""

    async def fulfil(route: Route) -> None:
        body = (await (await route.fetch()).text()).replace('"cancelled"', '"interrupted"')
        await route.fulfill(json=json.loads(body))

    await page.route("**/sessions/*/turns*", fulfil)


async def stop_again_before_a_word(page: Page, live: Live) -> None:
    live.says("太晚", pause_s=20)
    before = len(live.stub.bodies)
    await page.click(".turn:nth-child(2) .retry")
    while len(live.stub.bodies) == before:
        await page.wait_for_timeout(20)  # between two polls
    await page.keyboard.press("Escape")
    await answered(page, 2, "cancelled")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_stopped_answer_in_the_middle_can_be_continued_from(page: Page, live: Live) -> None:
    """Discriminates: cut turns without the button; a branch that begins at the last completed turn."""
    await page.goto(live.url)
    await stop_mid_answer(page, live, QUESTION)
    live.says("答。")
    await ask(page, NEXT)
    await answered(page, 2)
    await page.hover(".turn:nth-child(1)")
    await page.click(".turn:nth-child(1) .continue-here")
    await shows_cut(page, QUESTION)
    sent = sent_by(page)
    await ask(page, LAST)
    await answered(page, 2)
    assert [body["parent_turn_id"] for body in sent] == [(await ids(page))[0]]
    await shows_version(page, 2, "2/2")
