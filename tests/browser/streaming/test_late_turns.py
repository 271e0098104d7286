"""Replies about conversations that arrive when the reader has moved on: to another one, or to another
action."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.branches.branching import click_action, edit, shows
from tests.browser.composer.composing import BOX, Served
from tests.browser.support.conversations import choose, import_session, open_menu, return_to_tab, row
from tests.browser.support.driving import answered, ask
from tests.browser.support.late import hold, tree_of, turns_of
from tests.browser.support.profiles import profile

FIRST, NEXT = "第 1 个问题", "只问这里\uff1f"
POST = r"/knowledge_chat_conversation$"
LIST = r"/sessions\?"
MAP = "#branches .open-map"


def questions(server: Served, session_id: str) -> list[str]:
    turns = httpx.get(f"{server.url}/sessions/{session_id}/turns").json()["turns"]
    return [turn["question"] for turn in turns]


async def go(page: Page, server: Served, session_id: str) -> None:
    await page.goto(f"{server.url}/#/s/{session_id}")


async def leave_and_come_back(page: Page, server: Served, session_id: str) -> None:
    """While `NEXT` is being sent."""
    await go(page, server, import_session(server.url, "别的"))
    await page.wait_for_selector(f".asked:has-text('{NEXT}')", state="detached")
    await answered(page, 1)
    await go(page, server, session_id)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_conversation_that_could_not_be_read_is_read_again(
    page: Page, server: Served, by_hand: bool
) -> None:
    """Discriminates: a notice, a list or a panel that stays when the server is back; a notice without a retry
    button."""
    session = import_session(server.url, "读不到的")
    away = re.compile(r":\d+/(sessions|documents|health)\b")
    await page.route(away, lambda route: route.abort())
    await go(page, server, session)
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
    page: Page, server: Served
) -> None:
    """Discriminates: asked wherever the reader is when the turns arrive."""
    slow, other = import_session(server.url, "慢的"), import_session(server.url, "别的", turns=2)
    turns = await hold(page, turns_of(slow))
    await go(page, server, slow)
    await turns.started.acquire()
    await ask(page, NEXT)
    await go(page, server, other)
    await answered(page, 2)
    await turns.arrive(page)
    await go(page, server, slow)
    await answered(page, 1)
    await expect(page.locator(BOX)).to_have_value(NEXT)
    assert questions(server, other) == [FIRST, "第 2 个问题"]


async def test_a_second_question_before_the_turns_have_arrived_stays_in_the_box(
    page: Page, server: Served
) -> None:
    """Discriminates: two answers at once, the second without the first in its history."""
    slow = import_session(server.url, "慢的")
    turns = await hold(page, turns_of(slow))
    await go(page, server, slow)
    await turns.started.acquire()
    await ask(page, NEXT)
    await ask(page, "然后呢\uff1f")
    turns.release.set()
    await shows(page, FIRST, NEXT)
    await expect(page.locator(BOX)).to_have_value("然后呢\uff1f")
    assert questions(server, slow) == [FIRST, NEXT]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_being_sent_is_still_shown_when_the_reader_returns(
    page: Page, server: Served
) -> None:
    """Discriminates: only the turns that the server already knows, and an answer that is never shown."""
    here = import_session(server.url, "这里")
    await go(page, server, here)
    await answered(page, 1)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, NEXT)
    await post.started.acquire()
    await leave_and_come_back(page, server, here)
    await page.wait_for_selector(f".turn:nth-child(2) .asked:has-text('{NEXT}')")
    await page.wait_for_selector("form.running")
    post.release.set()
    await shows(page, FIRST, NEXT)
    assert await page.input_value(BOX) == ""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_edit_being_sent_is_in_its_place_when_the_reader_returns(page: Page, server: Served) -> None:
    """Discriminates: put below the newest turn, whatever its parent."""
    here = import_session(server.url, "改过的", turns=3)
    await go(page, server, here)
    await answered(page, 3)
    post = await hold(page, POST, method="POST", reaches=False)
    await edit(page, 2, NEXT)
    await post.started.acquire()
    await leave_and_come_back(page, server, here)
    await page.wait_for_selector(f".turn:nth-child(2):last-child .asked:has-text('{NEXT}')")
    post.release.set()
    await shows(page, FIRST, NEXT)


async def test_a_conversation_opened_twice_during_an_answer_has_each_turn_once(
    page: Page, server: Served
) -> None:
    """Discriminates: two loads of a branch that both add their turns to the page."""
    here, other = import_session(server.url, "长的", turns=14), import_session(server.url, "别的")
    await go(page, server, here)
    await answered(page, 14)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, NEXT)
    await post.started.acquire()
    turns = await hold(page, turns_of(here), times=2)
    for session_id in (other, here) * 2:
        await go(page, server, session_id)
        await (answered(page, 1) if session_id == other else turns.started.acquire())
    turns.release.set()
    await page.wait_for_selector(".turn:nth-child(14)")
    post.release.set()
    await shows(page, *(f"第 {number} 个问题" for number in range(1, 15)), NEXT)


async def test_two_tabs_on_one_conversation_follow_each_other(
    page: Page, server: Served, browser: Browser
) -> None:
    """Discriminates: a tab that shows a question below a turn that is not its parent; one that learns of the
    others' turns only by a reload; a branch that begins without a word."""
    here = import_session(server.url, "两个标签页")
    apart = await profile(browser, locale="zh-CN")
    other = await apart.new_page()  # a separate window, so that none of them is hidden
    for tab in (page, other):
        await go(tab, server, here)
        await answered(tab, 1)
    await ask(other, NEXT)
    await answered(other, 2)
    await ask(page, "然后呢\uff1f")  # while it may not know of the other tab's
    await shows(page, FIRST, NEXT, "然后呢\uff1f")
    await return_to_tab(other)
    await shows(other, FIRST, NEXT, "然后呢\uff1f")
    assert await page.locator(".continuing").inner_text() == ""
    await click_action(page, 1, "continue-here")
    await shows(page, FIRST)
    await return_to_tab(page)
    assert "成为新的分支" in await page.locator(".continuing").inner_text()
    await shows(page, FIRST)
    await apart.close()


async def branched(page: Page, server: Served) -> str:
    """Two versions of the second turn; the line above leads to both."""
    session_id = import_session(server.url, "有分支的", turns=2)
    await go(page, server, session_id)
    await answered(page, 2)
    await edit(page, 2, NEXT)
    await shows(page, FIRST, NEXT)
    await page.wait_for_selector(MAP)
    return session_id


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_map_of_a_conversation_does_not_open_over_a_new_one(page: Page, server: Served) -> None:
    """Discriminates: a late tree taken for that of the empty conversation on the page."""
    tree = await hold(page, tree_of(await branched(page, server)))
    await page.click(MAP)
    await tree.started.acquire()
    await page.click("#sidebar .new-chat")
    await page.wait_for_selector("body.empty")
    await tree.arrive(page)
    assert await page.locator(".map-dialog").count() == 0
    assert not await page.is_visible("#branches")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_double_click_opens_one_map(page: Page, server: Served) -> None:
    """Discriminates: a map for each click, one above the other."""
    tree = await hold(page, tree_of(await branched(page, server)))
    await page.dblclick(MAP)
    await tree.started.acquire()
    await tree.arrive(page)
    await page.wait_for_selector(".map-dialog")
    assert await page.locator(".map-dialog").count() == 1


async def test_a_list_older_than_a_rename_does_not_undo_it(page: Page, server: Served) -> None:
    """Discriminates: the last reply taken for the newest."""
    session_id = import_session(server.url, "旧名")
    await page.goto(server.url)
    await page.wait_for_selector(row(session_id))
    sessions = await hold(page, LIST)
    await return_to_tab(page)
    await sessions.started.acquire()
    await page.press(f"{row(session_id)} .session-link", "F2")
    await page.fill(".rename", "新名")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".rename", state="detached")
    await sessions.arrive(page)
    assert await page.inner_text(f"{row(session_id)} .session-title") == "新名"


async def test_a_conversation_that_is_deleted_late_leaves_the_focus_where_it_is(
    page: Page, server: Served
) -> None:
    """Discriminates: the focus in the list, although the reader is writing a question."""
    session_id = import_session(server.url, "要删的")
    import_session(server.url, "留下的")
    await page.goto(server.url)
    erasing = await hold(page, rf"/sessions/{session_id}$", method="DELETE")
    await open_menu(page, session_id)
    await choose(page, "删除")
    await page.click("dialog .danger")
    await erasing.started.acquire()
    await page.click(BOX)
    await page.keyboard.type("one half")
    erasing.release.set()
    await page.wait_for_selector(row(session_id), state="detached")
    await page.keyboard.type(", the other")
    assert await page.input_value(BOX) == "one half, the other"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_version_that_arrives_late_leaves_the_focus_where_it_is(page: Page, server: Served) -> None:
    """Discriminates: the focus on its pager, although the reader is writing a question."""
    turns = await hold(page, turns_of(await branched(page, server)))
    await page.click(".turn:nth-child(2) .versions button >> nth=0")
    await turns.started.acquire()
    await page.click(BOX)
    await page.keyboard.type("one half")
    turns.release.set()
    await shows(page, FIRST, "第 2 个问题")
    await page.keyboard.type(", the other")
    assert await page.input_value(BOX) == "one half, the other"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_menu_of_a_conversation_closes_when_the_browser_goes_back(
    page: Page, server: Served
) -> None:
    """Discriminates: a menu that stays above another conversation and deletes the previous one."""
    one, two = import_session(server.url, "先开的"), import_session(server.url, "后开的")
    await go(page, server, one)
    await page.wait_for_selector("h1:has-text('先开的')")
    await go(page, server, two)
    await page.wait_for_selector("h1:has-text('后开的')")
    await page.click(".head-menu")
    await page.wait_for_selector(".menu")
    await page.go_back()
    await page.wait_for_selector("h1:has-text('先开的')")
    assert await page.locator(".menu").count() == 0
