"""An answer while it streams: stages and their times, nothing shifts, the view follows the end."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.support.driving import TURN_ID, answer_with, answered, ask, sse_body
from tests.browser.support.live import QUESTION, Live

SHIFTS = """() => {
  window.__shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.__shifts.push(entry.value);
  }).observe({ type: "layout-shift" });
}"""
SHOWN = """[...document.querySelectorAll(".progress, .stages, .thinking, .prose, .sources")]
  .map((node) => node.outerHTML.replace(/<time[^]*?<[/]time>/, ""))"""
# Checks after each frame whether the end is in view: within a frame the answer grows, then the page scrolls.
FOLLOWED = """() => {
  window.__away = 0;
  const look = () => {
    const streams = document.querySelector(".turn")?.dataset.state === "streaming";
    const { scrollHeight } = document.scrollingElement;
    if (streams && scrollHeight - scrollY - innerHeight > 300) window.__away += 1;
    requestAnimationFrame(() => setTimeout(look));
  };
  look();
}"""
# Scrolling by a key takes a while: the position when some frames in a row change nothing.
SETTLED_TOP = """async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  for (let still = 0, top = scrollY; ; still = scrollY === top ? still + 1 : 0, top = scrollY) {
    if (still === 10) return top;
    await frame();
  }
}"""
AT_END = "document.scrollingElement.scrollHeight - scrollY - innerHeight < 100"
LINES = tuple(f"第 {number} 行，见 [1]。\n\n" for number in range(60))


async def test_the_stages_and_their_times_stay_behind_the_answers_time_and_after_a_reload(
    page: Page, live: Live
) -> None:
    """Discriminates: times that only the live page knows; an answer that differs from the stored text."""
    live.says("<think>", "想", "</think>", *LINES[:4], usage={"prompt_tokens": 321, "completion_tokens": 12})
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page)
    assert "用时" in await page.inner_text(".took")
    assert not await page.is_visible(".stages")
    before = await page.evaluate(SHOWN)
    drawn = {part: await page.inner_html(part) for part in (".prose", ".thinking-text")}
    await page.reload()
    await answered(page)
    await page.locator(".source").first.wait_for()
    for part, html in drawn.items():  # some frames after the turn
        await expect(page.locator(part)).to_have_js_property("innerHTML", html)
    assert await page.evaluate(SHOWN) == before
    assert await page.is_visible(".progress time")
    await page.click(".took")
    stages = await page.inner_text(".stages")
    assert all(word in stages for word in ("检索", "重排", "作答", "读入 321", "写出 12"))


@pytest.mark.full("judges how smooth it is, for seconds")
async def test_nothing_shifts_while_an_answer_streams_and_when_its_sources_arrive(
    page: Page, live: Live
) -> None:
    """Discriminates: the page following to the sources; a progress line that grows."""
    live.says("<think>", *["想一想。"] * 10, "</think>", *LINES, pause_s=0.02, halts=(71,))
    await page.goto(live.url)
    await page.evaluate(SHIFTS)
    await page.evaluate(FOLLOWED)
    await ask(page, QUESTION)
    await page.locator(".prose", has_text="第 58 行").wait_for()
    live.resume()  # the end arrives with one line, on a busy machine too
    await answered(page)
    await page.locator(".source").first.wait_for()
    assert await page.evaluate("window.__away") == 0
    last = page.locator(".prose .part:last-child > :last-child")
    box = await last.bounding_box()
    assert box is not None
    assert 300 < box["y"] < 860, "the answer's end is where it was"
    shift = await page.evaluate("window.__shifts.reduce((sum, value) => sum + value, 0)")
    print(f"layout shift {shift:.4f}")
    assert shift < 0.02


async def test_an_answer_that_arrives_at_once_is_read_from_its_beginning(page: Page, live: Live) -> None:
    """Discriminates: the page at the end of the sources, the answer's first words far above."""
    live.says(*LINES)
    await page.goto(live.url)
    for number in range(2):
        await ask(page, QUESTION)
        turn = page.locator(".turn").nth(number)
        await turn.locator(".source").first.wait_for()
        await page.evaluate(SETTLED_TOP)
        box = await turn.locator(".asked").bounding_box()
        assert box is not None
        assert 0 < box["y"] < 200
    await page.wait_for_selector("#to-end", state="visible")


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("how", ["wheel", "PageUp", "drag"])
async def test_a_reader_who_scrolls_up_stays_there_until_the_button(page: Page, live: Live, how: str) -> None:
    live.says(*LINES, *LINES, pause_s=0.02, halts=(60,))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.locator(".prose", has_text="第 30 行").wait_for()
    await go_up(page, how)
    top = await page.evaluate(SETTLED_TOP)
    live.resume()
    await answered(page)
    assert abs(await page.evaluate("scrollY") - top) < 60
    await page.click("#to-end")
    await page.locator(".source").last.wait_for()
    await page.wait_for_selector("#to-end", state="hidden")
    assert await page.evaluate(AT_END)


FLOOD = tuple("一行字。" + "\n\n" * (number % 8 == 7) for number in range(900))  # some lines per frame
GAP = "document.scrollingElement.scrollHeight - scrollY - innerHeight"


@pytest.mark.parametrize("how", ["trackpad", "finger"])
async def test_a_slow_gesture_upwards_leaves_the_end_of_a_fast_answer(
    page: Page, live: Live, how: str
) -> None:
    """It moves less between two pieces of the answer than counts as near the end. Discriminates: the view
    snatched back at each step, so that the beginning can only be read when the answer is complete."""
    live.says(*FLOOD, pause_s=0.008)
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.locator(".prose p").nth(40).wait_for()
    if how == "trackpad":
        await page.mouse.move(600, 300)
        for _ in range(12):
            await page.mouse.wheel(0, -6)
            await page.wait_for_timeout(16)  # as a trackpad sends them
    else:
        await drag_down(page, 250)
    top = await page.evaluate(SETTLED_TOP)
    await page.wait_for_selector("#to-end", state="visible")
    assert await page.get_attribute(".turn", "data-status") == "running"
    assert abs(await page.evaluate("scrollY") - top) < 60
    await page.mouse.wheel(0, 99999)  # back at the end the view follows again
    await page.wait_for_selector("#to-end", state="hidden")
    await answered(page)
    assert await page.evaluate(GAP) < 300


async def drag_down(page: Page, distance: int) -> None:
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    for at in range(0, distance + 1, 10):
        kind = "touchMove" if at else "touchStart"
        points = [{"x": 600, "y": 200 + at}]
        await devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        await page.wait_for_timeout(16)  # as a touch screen sends them
    await devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


async def test_the_progress_is_in_the_pages_language_after_a_switch(page: Page, live: Live) -> None:
    """Discriminates: the server's sentence, which is in the language of the question."""
    live.says("一", "二", halts=(1,))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.locator(".prose", has_text="一").wait_for()
    await expect(page.locator(".progress .now")).to_have_text("正在生成回答")
    await page.click("#language")
    await expect(page.locator(".progress .now")).to_have_text("Writing the answer")
    live.resume()
    await answered(page)


async def go_up(page: Page, how: str) -> None:
    if how == "wheel":
        await page.mouse.move(600, 300)
        await page.mouse.wheel(0, -600)
    elif how == "PageUp":
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("PageUp")
    else:  # the scrollbar: only the scroll event shows it
        await page.evaluate("scrollBy(0, -500)")
    await page.wait_for_selector("#to-end", state="visible")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_selected_text_stays_selected_while_its_paragraph_grows(page: Page, live: Live) -> None:
    """Discriminates: the growing block replaced on each frame."""
    live.says("开头这一句要被选中。", *["接着写。"] * 60, "\n\n完", pause_s=0.03, halts=(20,))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.locator(".prose p", has_text="接着写").wait_for()
    await page.evaluate("""() => {
      const text = document.querySelector(".prose p").firstChild;
      getSelection().setBaseAndExtent(text, 0, text, 10);
    }""")
    live.resume()
    await answered(page)
    assert await page.evaluate("String(getSelection())") == "开头这一句要被选中。"


async def test_warnings_and_the_rewritten_question_are_shown_in_words(page: Page, live: Live) -> None:
    stages = [
        {"stage": "retrieving", "message": "m"},
        {"stage": "rewriting", "message": "m"},
        {"stage": "rewriting", "message": "m", "question": "灯塔在哪里"},
        {"stage": "warning", "code": "reranker_unavailable", "message": "m"},
        {"stage": "warning", "code": "context_dropped", "message": "m", "recent": 2},
        {"stage": "warning", "code": "turns_unreadable", "message": "m", "turns": 3},
        {"stage": "warning", "code": "new_kind", "message": "服务器自己的话"},
        {"stage": "finished", "turn_id": TURN_ID, "status": "completed"},
    ]
    events = [("STATUS", stage) for stage in stages]
    await answer_with(
        page,
        sse_body(
            [("SESSION", "x"), *events[:-1], ("CONTENT", "a"), ("SOURCE", []), events[-1], ("DONE", "")]
        ),
    )
    await page.goto(live.url)
    await ask(page, "?")
    await answered(page)
    notes = await page.inner_text(".notes")
    assert all(word in notes for word in ("灯塔在哪里", "重排服务", "放不下", "3 轮", "服务器自己的话"))
    await page.click("#language")
    assert "could not be reached" in await page.inner_text(".notes")
