"""The list of conversations: its order, its pages, its search, and the reader's position in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.support.conversations import erase, import_session, return_to_tab, row, titles
from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

MANY = 60
AGES = {"今天的": 0.0, "四天前的": 4.0, "老的": 400.0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A separate server with sixty conversations of two days ago and a few of other days."""
    with running_server(tmp_path_factory.mktemp("listed"), LOAD_SAMPLE="false", EMBEDDING=HASHING) as server:
        for number in range(MANY):
            import_session(server.url, f"第 {number} 个", days_ago=2 + number / 10_000)
        for title, days_ago in AGES.items():
            import_session(server.url, title, days_ago=days_ago)
        yield server.url


async def scroll_to_end(page: Page) -> None:
    await page.evaluate("document.querySelector('#sessions').scrollTop = 1e6")


async def whole_list(page: Page) -> None:
    await page.wait_for_selector(".session:has-text('第 0 个')")
    while not await page.locator(".session:has-text('老的')").count():
        await scroll_to_end(page)
        await page.wait_for_timeout(50)  # between two turns of the mouse wheel


async def search(page: Page, text: str) -> None:
    await page.fill("#session-search", text)
    await page.wait_for_selector("#sessions[aria-busy]", state="detached")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_conversations_are_grouped_by_the_day_of_their_newest_turn(page: Page, url: str) -> None:
    await page.goto(url)
    await whole_list(page)
    headings = await page.locator("#sessions h2").all_inner_texts()
    assert headings[:2] == ["今天", "七天内"]
    assert headings[-1].endswith("月")
    shown = await page.locator("#sessions :is(h2, .session-title)").all_inner_texts()
    assert "今天的" in shown[: shown.index("七天内")]
    await page.click("#language")
    assert (await page.locator("#sessions h2").all_inner_texts())[:2] == ["Today", "Last 7 days"]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_list_continues_when_it_is_scrolled(page: Page, url: str) -> None:
    """Discriminates: no observer at the end of the list; a page that is inserted twice."""
    await page.goto(url)
    await page.wait_for_selector(".session")
    assert await page.locator(".session").count() == 50
    await whole_list(page)
    shown = await titles(page)
    assert len(shown) == len(set(shown))
    assert {f"第 {number} 个" for number in range(MANY)} <= set(shown)
    assert not await page.is_visible("#sessions > .text-button")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_search_finds_conversations_that_no_page_has_shown_yet(page: Page, url: str) -> None:
    """Discriminates: a search among the loaded rows."""
    await page.goto(url)
    await page.wait_for_selector(".session")
    await page.fill("#session-search", "老的")
    await page.wait_for_selector(".session:has-text('老的')")
    assert await titles(page) == ["老的"]
    assert await page.locator("#sessions h2").count() == 1
    await page.wait_for_selector("#announcer:text-is('找到 1 个对话')", state="attached")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_search_finds_words_of_a_turn_and_opens_it_there(page: Page, url: str) -> None:
    """Discriminates: only titles; a link to the end of the conversation; words that stay when the search is
    over; a field that the arrow key cannot leave."""
    session_id = import_session(url, "很长的一次", turns=40)
    try:
        await page.goto(url)
        await search(page, "第 7 个问题")
        await page.wait_for_selector(f"{row(session_id)} .session-match:has-text('第 7 个问题')")
        await page.press("#session-search", "ArrowDown")
        await expect(page.locator(f"{row(session_id)} a")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator(".turn", has_text="第 7 个问题")).to_be_in_viewport()
        await search(page, "")
        await page.wait_for_selector(f"{row(session_id)} .session-match", state="hidden")
        assert await page.get_attribute(f"{row(session_id)} a", "href") == f"#/s/{session_id}"
    finally:
        erase(url, session_id)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_search_without_hits_says_so_and_esc_restores_the_list(page: Page, url: str) -> None:
    await page.goto(url)
    await page.wait_for_selector(".session")
    await page.fill("#session-search", "<b>没有</b>")
    await expect(page.locator("#sessions")).to_have_text("没有找到含“<b>没有</b>”的对话")  # a title or a turn
    assert await page.locator(".session").count() == 0
    await page.press("#session-search", "Escape")
    await page.wait_for_selector(".session")
    assert await page.input_value("#session-search") == ""
    assert len(await titles(page)) == 50


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_failing_search_says_so_and_can_be_repeated(page: Page, url: str) -> None:
    await page.goto(url)
    await page.wait_for_selector(".session")
    await page.route("**/sessions?*q=*", lambda route: route.abort())
    await page.fill("#session-search", "老的")
    await page.wait_for_selector("#sessions:has-text('暂时读不到')")
    await page.unroute("**/sessions?*q=*")
    await page.click("#sessions .text-button")
    await page.wait_for_selector(".session:has-text('老的')")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_new_reply_keeps_the_position_and_what_is_being_typed(page: Page, url: str) -> None:
    """Discriminates: rows that are recreated; a field that moves; a list that jumps back to its top."""
    await page.goto(url)
    await whole_list(page)
    await page.evaluate("document.querySelector('#sessions').scrollTop = 400")
    edited = page.locator(".session:has-text('第 20 个')")
    await edited.locator(".session-link").press("F2")
    await page.keyboard.type("写到一半")
    top = await page.evaluate("document.querySelector('#sessions').scrollTop")
    import_session(url, "别处新开的")
    await return_to_tab(page)
    await page.wait_for_selector(".session:has-text('别处新开的')")
    assert await page.input_value(".rename") == "写到一半"
    assert await page.evaluate("document.activeElement.className") == "rename"
    assert abs(await page.evaluate("document.querySelector('#sessions').scrollTop") - top) <= 1
    assert len(await titles(page)) > MANY


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_old_conversation_opened_by_its_address_has_its_name(page: Page, url: str) -> None:
    """Discriminates: a title searched for among the rows only."""
    old = import_session(url, "很久以前的对话", days_ago=500)
    await page.goto(f"{url}/#/s/{old}")
    await page.wait_for_selector("h1:has-text('很久以前的对话')")
    assert await page.title() == "很久以前的对话 · Wenmai"
    await page.wait_for_selector("#announcer:has-text('已打开对话：很久以前的对话')", state="attached")
    assert await page.locator(row(old)).count() == 0
    assert await page.locator("h1:visible").count() == 1


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_arrow_keys_move_from_one_conversation_to_the_next(page: Page, url: str) -> None:
    await page.goto(url)
    await page.focus(".session-link >> nth=0")
    await page.keyboard.press("ArrowDown")
    second = await page.locator(".session-link >> nth=1").get_attribute("href")
    assert await page.evaluate("document.activeElement.getAttribute('href')") == second
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".session.current .session-link[aria-current=page]")
    assert page.url.endswith(str(second))


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_conversation_that_began_while_the_list_was_loading_is_in_it(page: Page, url: str) -> None:
    """Discriminates: an open conversation that has no row until the next question."""
    read, opened = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        reply = await route.fetch()
        read.set()
        await opened.wait()
        await route.fulfill(response=reply)

    await page.route("**/sessions?*", late, times=1)
    await page.goto(url)
    await read.wait()
    session_id = import_session(url, "刚开始的")
    try:
        await page.goto(f"{url}/#/s/{session_id}")
        await page.wait_for_selector(".asked:has-text('第 1 个问题')")
        opened.set()
        await page.wait_for_selector(f"{row(session_id)}.current")
    finally:
        erase(url, session_id)


async def test_a_conversation_that_is_being_answered_is_marked(page: Page, live: Live) -> None:
    """Discriminates: a conversation that the reader has left looks like any other until its answer is
    complete."""
    live.says("一", "二", halts=(1,))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.locator(".prose", has_text="一").wait_for()
    mark = page.locator(".session .answering")
    await page.click("#sidebar .new-chat")
    await page.wait_for_selector(".turn", state="detached")
    await expect(mark.locator("visible=true")).to_have_count(1)
    await page.reload()  # as another window sees it
    await expect(mark.locator("visible=true")).to_have_count(1)
    live.resume()
    await page.click(".session-link >> nth=0")
    await answered(page)
    await expect(mark.locator("visible=true")).to_have_count(0)


async def test_a_search_with_too_many_matches_says_so(page: Page, url: str) -> None:
    """Discriminates: a list that ends as if nothing else contained the words."""

    async def too_many(route: Route) -> None:
        reply = await route.fetch()
        await route.fulfill(json={**await reply.json(), "partial": True})

    await page.route("**/sessions?*q=*", too_many)
    await page.goto(url)
    await search(page, "今天的")
    await expect(page.locator("#sessions")).to_contain_text("只列出最相关的 100 轮")
