"""The connection breaks while an answer streams: it resumes automatically, no character doubled or
missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.branches.branching import shows
from tests.browser.support.cutting_proxy import CuttingProxy
from tests.browser.support.driving import TURN_ID, answer_in_turn, answered, ask, sse_body, whole_turn
from tests.browser.support.live import QUESTION, Live
from tests.browser.support.profiles import profile

WORDS = tuple(f"第{number}段。" for number in range(60))
WHOLE = "".join(WORDS)
HALT = 20
STATES = """() => {
  window.__states = [];
  new MutationObserver(() => window.__states.push(document.querySelector("#thread .turn").dataset.state))
    .observe(document.querySelector("#thread"), { subtree: true, attributeFilter: ["data-state"] });
}"""
# Makes the page's timeouts and delays as short or long as a test needs them.
PATIENCE = """async (changes) => Object.assign((await part("stream/timeouts.js")).timeouts, changes)"""


async def test_a_second_tab_shows_the_answer_that_keeps_its_question_waiting(
    page: Page, live: Live, browser: Browser
) -> None:
    """Discriminates: an error card, without the answer that is being written and without its stop button."""
    apart = await profile(browser, locale="zh-CN")
    other = await apart.new_page()  # a separate window, so that none of them is hidden
    live.says("第一个回答。")
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page)
    await other.goto(page.url)
    await answered(other)
    live.says("还在", "写。", halts=(1,))
    await ask(page, "然后呢\uff1f")
    await page.locator(".prose", has_text="还在").wait_for()
    await ask(other, "还有什么\uff1f")
    await expect(other.locator(".asked")).to_have_text([QUESTION, "然后呢\uff1f"])
    await other.locator(".prose", has_text="还在").wait_for()
    await expect(other.locator("#composer .send")).to_have_attribute("aria-label", "停止（Esc）")
    await expect(other.locator("#question")).to_have_value("还有什么\uff1f")
    await expect(other.locator(".composer-note")).to_contain_text("放回了输入框")
    assert await other.locator(".error-card").count() == 0
    live.resume()
    await answered(other, 2)
    await other.press("#question", "Enter")
    await shows(other, QUESTION, "然后呢\uff1f", "还有什么\uff1f")
    await apart.close()


@pytest.fixture
def proxy(live: Live) -> Iterator[CuttingProxy]:
    live.says(*WORDS, pause_s=0.03, halts=(HALT,))
    started = CuttingProxy(live.url)
    yield started
    started.close()


async def streaming(page: Page) -> None:
    """The answer has begun, and does not end before `live.resume`."""
    await page.wait_for_selector(".turn[data-state=streaming]")
    await page.locator(".prose", has_text=WORDS[HALT - 1]).wait_for()


async def begin(page: Page, proxy: CuttingProxy, **patience: float) -> None:
    await page.goto(proxy.url)
    await page.evaluate(PATIENCE, {"firstDelayMs": 100, **patience})
    await page.evaluate(STATES)
    await ask(page, QUESTION)


async def assert_whole(page: Page) -> None:
    await answered(page)
    assert await page.inner_text(".prose") == WHOLE
    assert "reconnecting" in await page.evaluate("window.__states")
    assert await page.locator(".error-card").count() == 0


async def test_a_connection_cut_inside_a_character_is_resumed(
    page: Page, live: Live, proxy: CuttingProxy
) -> None:
    """Discriminates: a decoder kept over two connections; resuming after an incomplete event."""
    proxy.cut_after = "第9段".encode()[:-1]
    await begin(page, proxy)
    live.resume()
    await assert_whole(page)
    assert proxy.cuts == 1


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_temporarily_unreachable_server_is_awaited(
    page: Page, live: Live, proxy: CuttingProxy
) -> None:
    """Discriminates: giving up after the first refused connection."""
    await begin(page, proxy, longestDelayMs=200)
    await streaming(page)
    proxy.refusing = True
    proxy.cut_all()
    await page.wait_for_selector(".turn[data-state=reconnecting]")
    assert "重连" in await page.inner_text(".progress")
    while proxy.refused < 3:
        await page.wait_for_timeout(50)  # between two polls
    proxy.refusing = False
    live.resume()
    await assert_whole(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_reader_at_the_end_of_a_long_answer_sees_that_it_is_waiting(
    page: Page, live: Live, proxy: CuttingProxy
) -> None:
    """Discriminates: the message about the lost connection far above, where nobody reads."""
    live.says("很长的一段。\n\n" * 60, "完。", halts=(1,))
    await begin(page, proxy)
    await page.wait_for_selector(".turn[data-state=streaming]")
    await expect(page.locator(".progress")).not_to_be_in_viewport()
    proxy.refusing = True
    proxy.cut_all()
    await page.wait_for_selector(".turn[data-state=reconnecting]")
    await expect(page.locator(".progress")).to_be_in_viewport()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_stream_that_falls_silent_counts_as_lost(page: Page, live: Live, proxy: CuttingProxy) -> None:
    """Discriminates: waiting forever on an open connection."""
    await begin(page, proxy, silentMs=2500)
    await streaming(page)
    proxy.silent = True
    await page.wait_for_selector(".turn[data-state=reconnecting]")
    proxy.silent = False
    live.resume()
    await assert_whole(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_networks_return_ends_the_waiting(page: Page, live: Live, proxy: CuttingProxy) -> None:
    """Discriminates: sleeping for the whole delay."""
    await begin(page, proxy, firstDelayMs=600_000, longestDelayMs=600_000)
    await streaming(page)
    proxy.cut_all()
    await page.wait_for_selector(".turn[data-state=reconnecting]")
    await page.evaluate("dispatchEvent(new Event('online'))")
    live.resume()
    await assert_whole(page)


async def test_stop_works_while_reconnecting(page: Page, proxy: CuttingProxy) -> None:
    """Discriminates: a stop that waits until the connection is back; one that does not say that the server
    was not reached."""
    await begin(page, proxy, firstDelayMs=600_000, longestDelayMs=600_000)
    await streaming(page)
    proxy.refusing = True
    proxy.cut_all()
    await page.wait_for_selector(".turn[data-state=reconnecting]")
    await page.click("#composer .send")
    await answered(page, status="cancelled")
    assert "已停止" in await page.inner_text(".progress")
    assert (await page.inner_text(".prose")).startswith(WORDS[0])
    assert "连不上" in await page.inner_text(".error-card .cause")
    await page.click("#language")
    assert "could not be reached" in await page.inner_text(".error-card .cause")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_connection_lost_for_good_keeps_what_arrived_and_a_retry_fetches_the_rest(
    page: Page, live: Live, proxy: CuttingProxy
) -> None:
    await begin(page, proxy, firstDelayMs=20, longestDelayMs=50)
    await streaming(page)
    proxy.refusing = True
    proxy.cut_all()
    await answered(page, status="failed")
    assert (await page.inner_text(".prose")).startswith(WORDS[0])
    assert "连接断了" in await page.inner_text(".error-card")
    proxy.refusing = False
    live.resume()
    await page.click(".error-card .retry")
    await answered(page)
    assert await page.inner_text(".prose") == WHOLE
    assert await page.locator(".turn").count() == 1


async def test_a_reload_in_the_middle_of_an_answer_resumes_it(
    page: Page, live: Live, proxy: CuttingProxy
) -> None:
    await begin(page, proxy)
    await streaming(page)
    await page.reload()
    await page.wait_for_selector(".turn[data-status=running]")
    live.resume()
    await answered(page)
    assert await page.inner_text(".prose") == WHOLE


async def answer_after_a_crash(page: Page) -> None:
    """The reply of a server that was killed in the middle of an answer, of which it had stored nothing."""
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "interrupted"}
    rest = [("SOURCE", []), ("STATUS", finished), ("DONE", "")]
    whole = sse_body([("SESSION", "x"), ("CONTENT", "half"), *rest])
    begun = whole.index(f"id: {TURN_ID}:3".encode())

    async def resume(route: Route) -> None:
        await route.fulfill(body=whole[begun:], content_type="text/event-stream; charset=utf-8")

    async def read(route: Route) -> None:
        await route.fulfill(json={"status": "interrupted", "answer": ""})

    await page.route("**/turns/*", read)
    await page.route("**/turns/*/stream?*", resume)
    await answer_in_turn(page, [whole[:begun], whole_turn("whole")])


async def test_a_server_crash_removes_nothing_that_arrived(page: Page, live: Live) -> None:
    """Discriminates: the stored text, which is shorter, put over what arrived; an end without an ERROR event
    that shows no card."""
    await answer_after_a_crash(page)
    await page.goto(live.url)
    await ask(page, "?")
    await answered(page, status="interrupted")
    assert await page.inner_text(".prose") == "half"
    assert "没有完成" in await page.inner_text(".error-card .cause")
    turn = await page.get_attribute(".turn", "data-turn")
    await page.click(".error-card .retry")
    await answered(page)
    assert await page.get_attribute(".turn", "data-turn") == turn
    assert await page.inner_text(".prose") == "whole"
