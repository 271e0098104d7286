"""A question edited in place, one asked again after a reload, and one that continues from an earlier turn."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.branches.branching import (
    PHONE,
    Stubbed,
    ask_all,
    click_action,
    edit,
    ids,
    sent_by,
    shows,
    shows_version,
)
from tests.browser.support.driving import answered, ask, to_top

ONE, TWO, THREE, OTHER = "一号问题", "二号问题", "三号问题", "另一个问题"
BOX = ".question-editor textarea"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_up_in_an_empty_box_edits_the_newest_question_by_keyboard_alone(
    page: Page, stubbed: Stubbed
) -> None:
    """Discriminates: a command edited; Esc that sends or loses the focus; Enter of an IME that sends."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE, TWO, "/help")
    await page.press("#question", "ArrowUp")
    await expect(page.locator(BOX)).to_be_focused()
    assert await page.input_value(BOX) == TWO
    await page.keyboard.press("Escape")
    await expect(page.locator("#question")).to_be_focused()
    assert await page.inner_text(".turn:nth-child(2) .asked") == TWO
    await page.press("#question", "ArrowUp")
    await page.dispatch_event(BOX, "keydown", {"key": "Enter", "isComposing": True})
    await page.keyboard.press("End")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("more")
    await page.keyboard.press("Enter")
    await shows(page, ONE, f"{TWO}\nmore")
    await expect(page.locator("#question")).to_be_focused()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_editor_scrolls_into_view_above_the_question_box(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: an editor hidden behind the question box."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE, "\n".join([TWO] * 30), THREE)
    await page.set_viewport_size({"width": 1240, "height": 500})
    await to_top(page)
    await page.press("#question", "ArrowUp")
    await expect(page.locator(BOX)).to_be_focused()
    edge = "(name) => document.querySelector(name).getBoundingClientRect()"
    editor, dock = [await page.evaluate(edge, name) for name in (".question-editor", "#dock")]
    assert editor["bottom"] <= dock["top"]


async def test_the_editor_enforces_the_limit_and_sends_nothing_empty(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: a limit in UTF-16 units; blanks sent."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE)
    sent = sent_by(page)
    await edit(page, 1, "  \n ")
    await page.fill(BOX, "\U0001f30a" * 8000)
    assert await page.is_enabled(".question-editor [type=submit]")
    await page.fill(BOX, "\U0001f30a" * 8001)
    assert "8000" in await page.inner_text(".question-editor .warning")
    await page.press(BOX, "Enter")
    assert sent == []
    await page.press(BOX, "Escape")
    assert await page.is_visible(".asked")


async def test_the_next_question_continues_from_an_earlier_turn(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: a note that stays, or disappears after a reload; turns that no pager leads to."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE, TWO, THREE)
    first, second, third = await ids(page)
    await page.hover(".turn:last-child")
    await expect(page.locator(".turn:last-child .regenerate")).to_be_visible()
    assert await page.is_visible(".turn:last-child .continue-here") is False
    await page.set_viewport_size(PHONE)
    await expect(page.locator(".turn:first-child .turn-more")).to_be_visible()
    await click_action(page, 1, "continue-here")
    await shows(page, ONE)
    await expect(page.locator(".continuing")).to_have_text(
        f"下一个问题接在\u201c{ONE}\u201d之后\uff0c成为新的分支"
    )
    await page.reload()
    await shows(page, ONE)
    await page.click(".continuing button")
    await shows(page, ONE, TWO, THREE)
    await expect(page.locator(".continuing")).to_be_hidden()
    await click_action(page, 1, "continue-here")
    await page.wait_for_selector(".continuing span")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    sent = sent_by(page)
    await ask(page, OTHER)
    await shows(page, ONE, OTHER)
    assert [body["parent_turn_id"] for body in sent] == [first]
    await expect(page.locator(".continuing")).to_be_hidden()
    await shows_version(page, 2, "2/2")
    await page.click(".turn:nth-child(2) .version-step >> nth=0")
    await shows(page, ONE, TWO, THREE)
    assert await ids(page) == [first, second, third]
    await page.go_back()
    await shows(page, ONE, OTHER)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("remaining", [True, False])
async def test_a_failed_turn_is_asked_again_under_its_id_after_a_reload(
    page: Page, stubbed: Stubbed, remaining: bool
) -> None:
    """Discriminates: a new id; a parent sent along, which would make it another request.

    A turn from before requests were stored is asked as a new one.
    """
    stubbed.stub.status = 400
    try:
        await page.goto(stubbed.url)
        await ask(page, ONE)
        await answered(page, 1, "failed")
    finally:
        stubbed.stub.status = 200
    if not remaining:
        await page.add_init_script(
            "const json = Response.prototype.json; Response.prototype.json = async function () {"
            "  const body = await json.call(this);"
            "  for (const turn of body.turns ?? []) delete turn.request;"
            "  return body; }"
        )
    await page.reload()
    await answered(page, 1, "failed")
    [failed] = await ids(page)
    sent = sent_by(page)
    await page.click(".error-card button")
    await answered(page, 1 if remaining else 2)
    [body] = sent
    assert (body["turn_id"] == failed) is remaining
    assert "parent_turn_id" not in body
    await page.reload()
    await shows(page, ONE)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_edited_failed_question_and_its_followups_continue_from_the_completed_turn(
    page: Page, stubbed: Stubbed
) -> None:
    """Discriminates: the next question continuing from the failed turn."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE)
    stubbed.stub.status = 400
    try:
        await ask(page, TWO)
        await answered(page, 2, "failed")
        await edit(page, 2, THREE)
        await expect(page.locator(".asked").nth(1)).to_have_text(THREE)
        await answered(page, 2, "failed")
    finally:
        stubbed.stub.status = 200
    [first, _] = await ids(page)
    sent = sent_by(page)
    await ask(page, OTHER)
    await answered(page, 3)
    assert [body["parent_turn_id"] for body in sent] == [first]
    await page.reload()
    await shows(page, ONE, OTHER)
    await shows_version(page, 2, "3/3")
