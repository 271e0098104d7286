"""Every state of a turn is shown in words: from sending to its end, good or bad, and again after a retry."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, Route

from tests.browser.support.driving import ASK, TURN_ID, answer_with, answered, ask, sse_body, whole_turn
from tests.browser.support.live import QUESTION, Live
from tests.support.models.stub_llm import Refusal

# Records every state of a turn, and everything that is announced to a screen reader.
WATCH = """() => {
  window.__states = [];
  window.__words = {};
  window.__announced = [];
  new MutationObserver(() => {
    const turn = document.querySelector("#thread .turn:last-child");
    const state = turn?.dataset.state;
    if (!state || state === window.__states.at(-1)) return;
    window.__states.push(state);
    const place = state === "thinking" ? ".thinking summary" : ".progress";
    window.__words[state] = turn.querySelector(place).innerText;
  }).observe(document.querySelector("#thread"),
    { subtree: true, childList: true, attributeFilter: ["data-state"] });
  const announcer = document.querySelector("#announcer");
  const observer = new MutationObserver(() => window.__announced.push(announcer.textContent));
  observer.observe(announcer, { childList: true });
}"""
# Records the state of the retry button when it appears.
NOTE_RETRY = """() => new MutationObserver(() => {
  const retry = document.querySelector(".error-card .retry");
  if (retry) window.__retry ??= [retry.disabled, retry.innerText];
}).observe(document.querySelector("#thread"), { subtree: true, childList: true })"""
STATE = "document.querySelector('#thread .turn:last-child').dataset.state"


async def open_watched(page: Page, url: str) -> None:
    await page.goto(url)
    await page.evaluate(WATCH)


async def refuse_once(page: Page, status: int, code: str, **headers: str) -> None:
    """The first question is refused with that error, the next one is let through."""

    async def fulfil(route: Route) -> None:
        error = {"code": code, "message": "no", "retryable": status in (409, 429, 503), "request_id": "r-1"}
        body = json.dumps({"error": error})
        await route.fulfill(status=status, body=body, headers={"Content-Type": "application/json", **headers})

    await page.route(ASK, fulfil, times=1)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_turn_goes_through_its_states_in_words_and_announces_them(page: Page, live: Live) -> None:
    """Discriminates: a state that is set without words; announcing every token."""
    live.says(
        "<think>", "想一想", "</think>", *["字"] * 8, halts=(2, 6)
    )  # a busy page joins what comes at once
    await open_watched(page, live.url)
    await ask(page, QUESTION)
    await page.wait_for_selector(".turn[data-state=thinking]")
    live.resume()
    await page.wait_for_selector("#announcer:has-text('正在生成回答')", state="attached")
    live.resume()
    await answered(page)
    words = await page.evaluate("window.__words")
    assert "思考中" in words["thinking"]
    assert "检索" in words["streaming"]
    assert "正在生成回答" in words["streaming"]
    assert "用时" in words["completed"]
    states = await page.evaluate("window.__states")
    assert [each for each in states if each != "searching"] == [
        "sending",
        "thinking",
        "streaming",
        "completed",
    ]
    announced = await page.evaluate("window.__announced")
    assert any("正在生成回答" in text for text in announced)
    assert "回答完成" in announced[-1]
    assert len(announced) < 6


async def test_a_stopped_turn_says_so_and_keeps_what_arrived(page: Page, live: Live) -> None:
    live.says(*["字"] * 200, pause_s=0.05)
    await open_watched(page, live.url)
    await ask(page, QUESTION)
    await page.wait_for_selector(".turn[data-state=streaming]")
    await page.locator(".prose", has_text="字字").wait_for()
    await page.keyboard.press("Escape")
    await answered(page, status="cancelled")
    assert await page.evaluate(STATE) == "cancelled"
    assert "已停止" in await page.inner_text(".progress")
    assert "字字" in await page.inner_text(".prose")
    assert await page.locator(".error-card").count() == 0


async def test_a_model_error_has_a_cause_a_hint_and_a_retry_under_the_same_id(page: Page, live: Live) -> None:
    """Discriminates: asking again as a new turn."""
    live.says(refuse=lambda body: Refusal("secret", 400))
    await open_watched(page, live.url)
    await ask(page, QUESTION)
    await answered(page, status="failed")
    assert await page.evaluate(STATE) == "error"
    card = await page.inner_text(".error-card")
    assert "模型没有给出回答" in card
    assert "换一个模型" in card
    assert "secret" not in card
    assert await page.locator(".error-card .retry").count() == 0


async def test_a_retry_runs_the_turn_again_under_its_id(page: Page, live: Live) -> None:
    live.says("one ", cut=True)
    await open_watched(page, live.url)
    await ask(page, QUESTION)
    await answered(page, status="failed")
    turn = await page.get_attribute(".turn", "data-turn")
    assert await page.inner_text(".prose") == "one"
    live.says("an", "swer")
    await page.click(".error-card .retry")
    await answered(page)
    assert await page.get_attribute(".turn", "data-turn") == turn
    assert await page.locator(".turn").count() == 1
    assert await page.inner_text(".prose") == "answer"
    assert "retrying" in await page.evaluate("window.__states")
    assert await page.locator(".error-card").count() == 0


async def test_an_interrupted_turn_says_so(page: Page, live: Live) -> None:
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "interrupted"}
    fault = {"stage": "error", "code": "turn_interrupted", "retryable": True, "request_id": "r-9"}
    events = [("SESSION", "x"), ("CONTENT", "half"), ("STATUS", fault), ("SOURCE", []), ("ERROR", "cut")]
    await answer_with(page, sse_body([*events, ("STATUS", finished), ("DONE", "")]))
    await open_watched(page, live.url)
    await ask(page, "?")
    await answered(page, status="interrupted")
    assert await page.evaluate(STATE) == "interrupted"
    assert "未答完" in await page.inner_text(".progress")
    assert "中断" in await page.inner_text(".error-card .cause")
    await page.click(".error-card summary")
    assert "r-9" in await page.inner_text(".error-card")
    assert await page.inner_text(".prose") == "half"


async def test_a_stage_that_comes_after_the_answer_began_leaves_it_streaming(page: Page, live: Live) -> None:
    """Discriminates: a turn shown as searching again while its answer is displayed."""
    later = {"stage": "polishing", "message": "Polishing"}
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "completed"}
    events = [("SESSION", "x"), ("CONTENT", "whole"), ("STATUS", later), ("SOURCE", [])]
    await answer_with(page, sse_body([*events, ("STATUS", finished), ("DONE", "")]))
    await open_watched(page, live.url)
    await ask(page, "?")
    await answered(page)
    assert (await page.evaluate("window.__states"))[-2:] == ["streaming", "completed"]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_pause_that_a_server_asks_for_precedes_the_retry(page: Page, live: Live) -> None:
    """Discriminates: the header not read; the button left disabled at the end."""
    live.says("fine")
    await open_watched(page, live.url)
    await page.evaluate(NOTE_RETRY)
    await refuse_once(page, 429, "too_many_streams", **{"Retry-After": "2"})
    await ask(page, QUESTION)
    await answered(page, status="failed")
    is_disabled, words = await page.evaluate("window.__retry")
    assert is_disabled
    assert "秒后" in words
    assert "太多" in await page.inner_text(".error-card .cause")
    await page.click(".error-card .retry")  # waits until it can be clicked
    await answered(page)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize(
    ("status", "code", "words", "retry"),
    [
        (422, "question_too_long", "问题太长", False),
        (409, "session_busy", "还有一个回答", True),
        (413, "body_too_large", "上限", False),
        (503, "shutting_down", "正在重启", True),
        (507, "disk_full", "磁盘", True),
    ],
)
async def test_a_refusal_is_explained_in_the_readers_words(
    page: Page, live: Live, status: int, code: str, words: str, retry: bool
) -> None:
    await page.goto(live.url)
    await refuse_once(page, status, code)
    await ask(page, QUESTION)
    await answered(page, status="failed")
    assert words in await page.inner_text(".error-card")
    assert await page.locator(".error-card .retry").count() == retry
    await page.click("#language")
    assert not any("\u4e00" <= char <= "\u9fff" for char in await page.inner_text(".error-card"))


async def test_a_pasted_text_leaves_space_for_its_answer(page: Page, bare_url: str) -> None:
    """Discriminates: a question of several screens above the first word of its answer; a question of two
    lines in a box that scrolls."""
    await page.goto(bare_url)
    await answer_with(page, whole_turn("译文。"))
    await ask(page, "翻译下面的话：\n" + "一段很长的正文。" * 400)
    await answered(page)
    box = page.locator(".asked > .long")
    await box.focus()
    await page.keyboard.press("End")
    await page.wait_for_function("(box) => box.scrollTop > 100", arg=await box.element_handle())
    assert await page.locator(".asked").evaluate("(asked) => asked.clientHeight < innerHeight / 3")
    await ask(page, "短的\n两行")
    await answered(page, 2)
    assert await box.count() == 1
