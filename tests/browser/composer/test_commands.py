"""Slash commands are completed above the box; a question that only looks like one is still asked."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.composer.composing import BOX, opened, sent_by
from tests.browser.support.driving import answered, ask

LIST = "#completions"
OPTIONS = f"{LIST} [role=option]"


async def active(page: Page) -> str:
    """The text of the option that the box points to; "" for none."""
    results = (
        "document.getElementById(document.querySelector('#question').getAttribute('aria-activedescendant'))"
    )
    return str(await page.evaluate(f"{results}?.querySelector('.command').innerText ?? ''"))


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_command_is_chosen_with_the_keyboard_alone(page: Page, server_url: str) -> None:
    """Discriminates: Enter that sends what is half typed."""
    await opened(page, server_url)
    await page.type(BOX, "/")
    assert await page.locator(OPTIONS).count() == 9
    assert await active(page) == "/help"
    await page.keyboard.press("ArrowUp")
    assert await active(page) == "/memories"
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    assert await active(page) == "/clear"
    await page.keyboard.press("Enter")
    assert await page.input_value(BOX) == "/clear"
    assert not await page.is_visible(LIST)
    assert await page.locator(".turn").count() == 0
    await page.fill(BOX, "")
    await page.type(BOX, "/he")
    await page.keyboard.press("Tab")
    assert await page.input_value(BOX) == "/help"
    assert await page.evaluate("document.activeElement.id") == "question"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_command_typed_in_full_is_sent_by_enter(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.type(BOX, "\uff0fhelp")
    assert await active(page) == "/help", "a full-width slash is one too"
    async with page.expect_request("**/knowledge_chat_conversation"):
        await page.keyboard.press("Enter")
    await page.wait_for_selector(".turn[data-status=completed]")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_escape_closes_the_list_and_the_text_stays(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.type(BOX, "/p")
    await page.wait_for_selector(LIST)
    await page.keyboard.press("Escape")
    assert not await page.is_visible(LIST)
    await page.type(BOX, "e")
    assert not await page.is_visible(LIST), "as long as it is the same word"
    assert await page.input_value(BOX) == "/pe"
    assert await page.get_attribute(BOX, "aria-activedescendant") is None


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_click_completes_and_the_caret_waits_for_the_text(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.type(BOX, "/per")
    await page.click(f"{OPTIONS} >> nth=1")
    await page.keyboard.type("Be brief.")
    assert await page.input_value(BOX) == "/persona Be brief."
    assert not await page.is_visible(LIST)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_enter_does_not_replace_an_argument(page: Page, server_url: str) -> None:
    """Discriminates: the first option active also while an argument is typed."""
    await opened(page, server_url)
    await page.type(BOX, "/persona c")
    await page.wait_for_selector(LIST)
    assert await active(page) == ""
    async with page.expect_request("**/knowledge_chat_conversation") as request:
        await page.keyboard.press("Enter")
    body = (await request.value).post_data_json
    assert body is not None
    assert body["question"] == "/persona c"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_keys_of_an_ime_composition_are_not_for_the_list(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.type(BOX, "/")
    await page.dispatch_event(BOX, "keydown", {"key": "Enter", "isComposing": True})
    await page.dispatch_event(BOX, "keydown", {"key": "ArrowDown", "keyCode": 229})
    assert await page.input_value(BOX) == "/"
    assert await active(page) == "/help"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_path_is_a_question(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    body = await sent_by(page, "/etc/hosts 是什么\uff1f")
    assert body["question"] == "/etc/hosts 是什么\uff1f"


async def test_commands_are_answered_in_the_language_of_the_page(page: Page, server_url: str) -> None:
    """Discriminates: a command answered in both languages, or in that of an earlier question."""
    await opened(page, server_url)
    await ask(page, "/help")
    await answered(page)
    await page.click("#language")
    await page.type(BOX, "/cl")
    assert "Start over" in await page.inner_text(LIST)
    await ask(page, "/help")
    await answered(page, 2)
    chinese, english = await page.locator(".prose").all_inner_texts()
    assert ("可用的命令" in chinese, "Commands" in chinese) == (True, False)
    assert ("可用的命令" in english, "Commands" in english) == (False, True)
