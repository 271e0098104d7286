"""Versions of a turn: made by asking again and by editing, reached by ‹ 1/2 ›, kept in the address."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.branches.branching import (
    PHONE,
    Stubbed,
    ask_all,
    edit,
    ids,
    sent_by,
    shows,
    shows_version,
    step,
)
from tests.browser.support.driving import answered, ask

ONE, TWO, THREE, OTHER = "一号问题", "二号问题", "三号问题", "另一个问题"


async def regenerate(page: Page, turn: int) -> None:
    await page.hover(f".turn:nth-child({turn})")
    await page.click(f".turn:nth-child({turn}) .regenerate")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_edited_into_a_branch_leads_back_to_the_first(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: an edit that follows the edited turn; a version shown without the turns below it."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE, TWO, THREE)
    first, second, third = await ids(page)
    sent = sent_by(page)
    await edit(page, 2, OTHER)
    await shows(page, ONE, OTHER)
    assert [(body["question"], body["parent_turn_id"]) for body in sent] == [(OTHER, first)]
    await shows_version(page, 2, "2/2")
    await shows_version(page, 1, "")
    await step(page, 2, -1)
    await shows(page, ONE, TWO, THREE)
    assert await ids(page) == [first, second, third]
    await shows_version(page, 2, "1/2")
    assert third in page.url
    await step(page, 2, 1)
    await shows(page, ONE, OTHER)
    await ask(page, "然后呢")
    await answered(page, 3)
    assert sent[-1]["parent_turn_id"] == (await ids(page))[1]


async def test_a_question_asked_again_gets_another_answer_beside_the_first(
    page: Page, stubbed: Stubbed
) -> None:
    """Discriminates: the turn's own id sent again; the options of the first time instead of the current
    ones."""
    stubbed.stub.words = ("甲",)
    await page.goto(stubbed.url)
    await ask_all(page, ONE)
    session, [first] = page.url[-36:], await ids(page)
    stubbed.stub.words = ("乙",)
    await page.click("#thinking")
    sent = sent_by(page)
    await regenerate(page, 1)
    await shows_version(page, 1, "2/2")
    await shows(page, ONE)
    assert await page.inner_text(".prose") == "乙"
    [body] = sent
    assert body["turn_id"] != first
    assert [body[name] for name in ("session_id", "parent_turn_id", "thinking")] == [session, None, True]
    await step(page, 1, -1)
    await expect(page.locator(".prose")).to_have_text("甲")
    await shows_version(page, 1, "1/2")


async def test_the_address_keeps_the_branch_and_back_returns(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: no entry in the history; a reload that shows the newest; an address kept after the next
    question."""
    await page.goto(stubbed.url)
    await ask_all(page, ONE, TWO)
    await edit(page, 2, OTHER)
    await shows(page, ONE, OTHER)
    newest = page.url
    await step(page, 2, -1)
    await shows(page, ONE, TWO)
    older = page.url
    await page.reload()
    await shows(page, ONE, TWO)
    await shows_version(page, 2, "1/2")
    await page.go_back()
    await shows(page, ONE, OTHER)
    assert page.url == newest
    await page.go_forward()
    await shows(page, ONE, TWO)
    assert page.url == older
    await ask(page, THREE)
    await answered(page, 3)
    await page.reload()
    await shows(page, ONE, TWO, THREE)
    assert page.url == newest


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_branch_whose_end_was_deleted_gives_way_to_the_newest(page: Page, stubbed: Stubbed) -> None:
    await page.goto(stubbed.url)
    await ask_all(page, ONE)
    plain = page.url
    await page.goto(f"{plain}/0b0e8a52-6f1c-4d1e-9a43-5a1c6d1f7e21")
    await page.reload()
    await shows(page, ONE)
    assert page.url == plain


@pytest.mark.full("a journey of seconds in a real browser")
async def test_scroll_position_and_focus_stay_when_switching_versions(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: turns above the fork redrawn; a page that jumps to its end or when it gets shorter."""
    stubbed.stub.words = ("很长的回答。\n\n",) * 30
    await page.goto(stubbed.url)
    await ask_all(page, ONE, TWO, THREE)
    stubbed.stub.words = ("短",)
    await edit(page, 2, OTHER)
    await shows(page, ONE, OTHER)
    await page.evaluate("document.querySelector('.turn').mark = 'kept'")
    await page.evaluate("document.querySelectorAll('.turn')[1].scrollIntoView()")
    for to, questions in ((-1, [ONE, TWO, THREE]), (1, [ONE, OTHER])):
        pager = page.locator(f".turn:nth-child(2) .version-step[data-step='{to}']")
        before = await pager.bounding_box()
        await pager.focus()
        await page.keyboard.press("Enter")
        await shows(page, *questions)
        await page.wait_for_timeout(500)  # the scrolling to the turn has ended
        after = await pager.bounding_box()
        assert before
        assert after
        assert abs(before["y"] - after["y"]) < 2
        assert await pager.evaluate("button => button === document.activeElement")
        assert await page.evaluate("document.querySelector('.turn').mark") == "kept"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_pager_says_what_it_shows_and_stops_at_its_ends(page: Page, stubbed: Stubbed) -> None:
    await page.set_viewport_size(PHONE)
    await page.goto(stubbed.url)
    await ask_all(page, ONE)
    await edit(page, 1, TWO)
    await shows(page, TWO)
    await edit(page, 1, THREE)
    await shows(page, THREE)
    await shows_version(page, 1, "3/3")
    assert await page.get_by_role("group", name="第 3 个版本\uff0c共 3 个").is_visible()
    after = page.get_by_role("button", name="下一个版本")
    assert await after.get_attribute("aria-disabled") == "true"
    await after.focus()
    await page.keyboard.press("Enter")
    await shows(page, THREE)
    await step(page, 1, -1)
    await shows(page, TWO)
    assert await page.inner_text("#announcer") == "第 2 个版本\uff0c共 3 个"
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_running_answer_continues_while_another_version_is_read(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: a switch that stops the answer; actions offered while it runs; Stop for an answer
    elsewhere."""
    await page.goto(stubbed.url)
    stubbed.stub.words = ("甲",)
    await ask_all(page, ONE, TWO)
    stubbed.stub.words, stubbed.stub.pause_s = ("词 ",) * 60, 0.5
    try:
        await regenerate(page, 2)
        await page.wait_for_selector(".turn:nth-child(2)[data-status=running] .prose p")
        for act in (".regenerate", ".edit-question", ".continue-here"):
            assert await page.is_visible(f".turn:nth-child(2) {act}") is False
        await step(page, 2, -1)
        await shows(page, ONE, TWO)
        assert await page.locator("#composer.running").count() == 0
        await step(page, 2, 1)
        await page.wait_for_selector(".turn:nth-child(2)[data-status=running]")
        await page.wait_for_selector("#composer.running")
        stubbed.stub.pause_s = 0  # slow only while it had to be running
        await answered(page, 2)
        assert await page.inner_text(".turn:nth-child(2) .prose") == ("词 " * 60).strip()
    finally:
        stubbed.stub.pause_s = 0
