"""Replies about conversations that come when the reader has gone on: to another one, or with another act."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.branches.branching import act, edit, shows
from tests.browser.composer.composing import BOX, Served
from tests.browser.support.conversations import bring, choose, come_back, open_menu, row
from tests.browser.support.driving import answered, ask
from tests.browser.support.late import hold, tree_of, turns_of
from tests.browser.support.profiles import profile

FIRST, NEXT = "第 1 个问题", "只问这里\uff1f"
POST = r"/knowledge_chat_conversation$"
LIST = r"/sessions\?"
MAP = "#branches .open-map"


def questions(desk: Served, session_id: str) -> list[str]:
    turns = httpx.get(f"{desk.url}/sessions/{session_id}/turns").json()["turns"]
    return [turn["question"] for turn in turns]


async def go(page: Page, desk: Served, session_id: str) -> None:
    await page.goto(f"{desk.url}/#/s/{session_id}")


async def leave_and_come_back(page: Page, desk: Served, session_id: str) -> None:
    """While `NEXT` is on its way."""
    await go(page, desk, bring(desk.url, "别的"))
    await page.wait_for_selector(f".asked:has-text('{NEXT}')", state="detached")
    await answered(page, 1)
    await go(page, desk, session_id)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_conversation_that_could_not_be_read_is_read_again(
    page: Page, desk: Served, by_hand: bool
) -> None:
    """Discriminates: a notice, a list or a panel that stays when the server is back; a notice without a way
    to try again."""
    session = bring(desk.url, "读不到的")
    away = re.compile(r":\d+/(sessions|documents|health)\b")
    await page.route(away, lambda route: route.abort())
    await go(page, desk, session)
    retry = page.locator(".notice button")
    await retry.click()
    await expect(page.locator(".notice")).to_contain_text("读不到")
    await expect(page.locator("#sessions")).to_contain_text("读不到")
    if by_hand:
        await page.unroute(away)
        await page.route("**/health/*", lambda route: route.abort())
        await retry.click()
    else:
        await page.click(".open-documents")
        await expect(page.locator(".list-note")).to_contain_text("读不到")
        async with page.expect_request("**/models"):
            await page.unroute(away)
        await page.wait_for_selector("#sessions .session", state="attached")
        await expect(page.locator(".list-note")).to_be_hidden()
    await shows(page, FIRST)
    await expect(page.locator(".notice")).to_have_count(0)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_is_never_asked_in_a_conversation_that_was_opened_later(
    page: Page, desk: Served
) -> None:
    """Discriminates: asked wherever the reader is when the turns have come."""
    slow, other = bring(desk.url, "慢的"), bring(desk.url, "别的", turns=2)
    turns = await hold(page, turns_of(slow))
    await go(page, desk, slow)
    await turns.begun.acquire()
    await ask(page, NEXT)
    await go(page, desk, other)
    await answered(page, 2)
    await turns.arrive(page)
    await go(page, desk, slow)
    await answered(page, 1)
    await expect(page.locator(BOX)).to_have_value(NEXT)
    assert questions(desk, other) == [FIRST, "第 2 个问题"]


async def test_a_second_question_before_the_turns_are_there_stays_in_the_box(
    page: Page, desk: Served
) -> None:
    """Discriminates: two answers at once, the second without the first in its history."""
    slow = bring(desk.url, "慢的")
    turns = await hold(page, turns_of(slow))
    await go(page, desk, slow)
    await turns.begun.acquire()
    await ask(page, NEXT)
    await ask(page, "然后呢\uff1f")
    turns.let_go.set()
    await shows(page, FIRST, NEXT)
    await expect(page.locator(BOX)).to_have_value("然后呢\uff1f")
    assert questions(desk, slow) == [FIRST, NEXT]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_on_its_way_is_there_when_the_reader_comes_back(page: Page, desk: Served) -> None:
    """Discriminates: only the turns that the server knows already, and an answer that is never shown."""
    here = bring(desk.url, "这里")
    await go(page, desk, here)
    await answered(page, 1)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, NEXT)
    await post.begun.acquire()
    await leave_and_come_back(page, desk, here)
    await page.wait_for_selector(f".turn:nth-child(2) .asked:has-text('{NEXT}')")
    await page.wait_for_selector("form.running")
    post.let_go.set()
    await shows(page, FIRST, NEXT)
    assert await page.input_value(BOX) == ""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_edit_on_its_way_is_in_its_own_place_when_the_reader_comes_back(
    page: Page, desk: Served
) -> None:
    """Discriminates: put below the newest turn, whatever it follows."""
    here = bring(desk.url, "改过的", turns=3)
    await go(page, desk, here)
    await answered(page, 3)
    post = await hold(page, POST, method="POST", reaches=False)
    await edit(page, 2, NEXT)
    await post.begun.acquire()
    await leave_and_come_back(page, desk, here)
    await page.wait_for_selector(f".turn:nth-child(2):last-child .asked:has-text('{NEXT}')")
    post.let_go.set()
    await shows(page, FIRST, NEXT)


async def test_a_conversation_opened_twice_over_a_running_answer_has_each_turn_once(
    page: Page, desk: Served
) -> None:
    """Discriminates: two readings of one branch that both put their turns onto the page."""
    here, other = bring(desk.url, "长的", turns=14), bring(desk.url, "别的")
    await go(page, desk, here)
    await answered(page, 14)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, NEXT)
    await post.begun.acquire()
    turns = await hold(page, turns_of(here), times=2)
    for session_id in (other, here) * 2:
        await go(page, desk, session_id)
        await (answered(page, 1) if session_id == other else turns.begun.acquire())
    turns.let_go.set()
    await page.wait_for_selector(".turn:nth-child(14)")
    post.let_go.set()
    await shows(page, *(f"第 {number} 个问题" for number in range(1, 15)), NEXT)


async def test_two_tabs_on_one_conversation_follow_each_other(
    page: Page, desk: Served, browser: Browser
) -> None:
    """Discriminates: a tab that shows a question below a turn that it does not follow; one that learns of the
    others' turns by a reload alone; a branch that begins without a word."""
    here = bring(desk.url, "两个标签页")
    apart = await profile(browser, locale="zh-CN")
    other = await apart.new_page()  # a window of its own: none of them is hidden
    for tab in (page, other):
        await go(tab, desk, here)
        await answered(tab, 1)
    await ask(other, NEXT)
    await answered(other, 2)
    await ask(page, "然后呢\uff1f")  # while it may not have heard of the other tab's
    await shows(page, FIRST, NEXT, "然后呢\uff1f")
    await come_back(other)
    await shows(other, FIRST, NEXT, "然后呢\uff1f")
    assert await page.locator(".continuing").inner_text() == ""
    await act(page, 1, "continue-here")
    await shows(page, FIRST)
    await come_back(page)
    assert "成为新的分支" in await page.locator(".continuing").inner_text()
    await shows(page, FIRST)
    await apart.close()


async def branched(page: Page, desk: Served) -> str:
    """Two versions of the second turn; the line above leads to both."""
    session_id = bring(desk.url, "有分支的", turns=2)
    await go(page, desk, session_id)
    await answered(page, 2)
    await edit(page, 2, NEXT)
    await shows(page, FIRST, NEXT)
    await page.wait_for_selector(MAP)
    return session_id


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_map_of_a_conversation_does_not_open_over_a_new_one(page: Page, desk: Served) -> None:
    """Discriminates: a late tree taken for that of the empty conversation on the page."""
    tree = await hold(page, tree_of(await branched(page, desk)))
    await page.click(MAP)
    await tree.begun.acquire()
    await page.click("#sidebar .new-chat")
    await page.wait_for_selector("body.empty")
    await tree.arrive(page)
    assert await page.locator(".map-dialog").count() == 0
    assert not await page.is_visible("#branches")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_double_click_opens_one_map(page: Page, desk: Served) -> None:
    """Discriminates: a map for each click, one over the other."""
    tree = await hold(page, tree_of(await branched(page, desk)))
    await page.dblclick(MAP)
    await tree.begun.acquire()
    await tree.arrive(page)
    await page.wait_for_selector(".map-dialog")
    assert await page.locator(".map-dialog").count() == 1


async def test_a_list_that_is_older_than_a_rename_does_not_take_it_back(page: Page, desk: Served) -> None:
    """Discriminates: the last reply taken for the newest."""
    session_id = bring(desk.url, "旧名")
    await page.goto(desk.url)
    await page.wait_for_selector(row(session_id))
    sessions = await hold(page, LIST)
    await come_back(page)
    await sessions.begun.acquire()
    await page.press(f"{row(session_id)} .session-link", "F2")
    await page.fill(".rename", "新名")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".rename", state="detached")
    await sessions.arrive(page)
    assert await page.inner_text(f"{row(session_id)} .session-title") == "新名"


async def test_a_conversation_that_is_gone_at_last_leaves_the_keyboard_where_it_is(
    page: Page, desk: Served
) -> None:
    """Discriminates: the focus in the list, though the reader writes a question."""
    session_id = bring(desk.url, "要删的")
    bring(desk.url, "留下的")
    await page.goto(desk.url)
    erasing = await hold(page, rf"/sessions/{session_id}$", method="DELETE")
    await open_menu(page, session_id)
    await choose(page, "删除")
    await page.click("dialog .danger")
    await erasing.begun.acquire()
    await page.click(BOX)
    await page.keyboard.type("one half")
    erasing.let_go.set()
    await page.wait_for_selector(row(session_id), state="detached")
    await page.keyboard.type(", the other")
    assert await page.input_value(BOX) == "one half, the other"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_version_that_comes_at_last_leaves_the_keyboard_where_it_is(page: Page, desk: Served) -> None:
    """Discriminates: the focus on its pager, though the reader writes a question."""
    turns = await hold(page, turns_of(await branched(page, desk)))
    await page.click(".turn:nth-child(2) .versions button >> nth=0")
    await turns.begun.acquire()
    await page.click(BOX)
    await page.keyboard.type("one half")
    turns.let_go.set()
    await shows(page, FIRST, "第 2 个问题")
    await page.keyboard.type(", the other")
    assert await page.input_value(BOX) == "one half, the other"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_menu_of_a_conversation_closes_when_the_browser_goes_back(page: Page, desk: Served) -> None:
    """Discriminates: a menu that stands over another conversation and deletes the one before."""
    one, two = bring(desk.url, "先开的"), bring(desk.url, "后开的")
    await go(page, desk, one)
    await page.wait_for_selector("h1:has-text('先开的')")
    await go(page, desk, two)
    await page.wait_for_selector("h1:has-text('后开的')")
    await page.click(".head-menu")
    await page.wait_for_selector(".menu")
    await page.go_back()
    await page.wait_for_selector("h1:has-text('先开的')")
    assert await page.locator(".menu").count() == 0
