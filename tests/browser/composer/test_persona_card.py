"""The persona above the question box, on the real server with a model that records what it receives."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, Route

from core.conversation.sessions import MAX_PERSONA_CHARS
from tests.browser.composer.composing import BOX, Served, opened, publish, sent_by, session_in
from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.driving import answered, ask

PIRATE = "你是一名海盗\uff0c说话总带着海风的味道。"
JUDGE = "You are a judge. Be brief."
CARD = ".persona-card"


async def write(page: Page, text: str, name: str = "") -> None:
    """Write into the open dialog."""
    await page.fill("#persona-text", text)
    await page.fill("#persona-name", name)
    await page.click(".persona-dialog [type=submit]")
    await page.wait_for_selector(".persona-dialog", state="detached")


async def set_persona(page: Page, text: str, name: str = "") -> None:
    await page.click(".persona > .text-button")
    await write(page, text, name)


async def unfolded(page: Page) -> None:
    if await page.locator(f"{CARD}[open]").count() == 0:
        await page.click(f"{CARD} > summary")


async def test_a_persona_set_before_the_first_question_reaches_the_model(page: Page, server: Served) -> None:
    """Discriminates: asking without waiting for the persona to be set."""
    before = len(server.sessions())
    await opened(page, server.url)
    await set_persona(page, PIRATE, "海盗")
    assert "下一个问题" in await page.inner_text(".composer-note")
    assert len(server.sessions()) == before, "a change of mind leaves no empty conversation"
    await page.reload()
    assert "海盗" in await page.inner_text(CARD)
    await sent_by(page, "你是谁\uff1f")
    assert PIRATE in server.system()
    assert server.persona_of(session_in(page))["name"] == "海盗"
    await page.reload()
    await page.wait_for_selector(f"{CARD} b:text('海盗')")
    await page.click("#sidebar .new-chat")
    await page.wait_for_selector("text=设定人设")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_is_changed_cleared_and_restored(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await sent_by(page, "first")
    assert PIRATE not in server.system()
    await set_persona(page, PIRATE)
    await sent_by(page, "second", 2)
    assert PIRATE in server.system()
    await unfolded(page)
    await page.click("text=修改")
    await write(page, JUDGE)
    await sent_by(page, "third", 3)
    assert JUDGE in server.system()
    assert PIRATE not in server.system()
    await unfolded(page)
    await page.click(".persona-acts >> text=清除")
    await page.click(".composer-note >> text=恢复")
    await page.wait_for_selector(CARD)
    await unfolded(page)
    await page.click(".persona-acts >> text=清除")
    await page.wait_for_selector("text=设定人设")
    await sent_by(page, "fourth", 4)
    assert JUDGE not in server.system()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_passage_becomes_the_persona_only_when_the_person_confirms(
    page: Page, server: Served
) -> None:
    """Discriminates: setting it as soon as the bus event arrives."""
    document = server.add("守则.md", "# 守则\n\n回答前先问候。")
    await opened(page, server.url)
    await sent_by(page, "first")
    chunk = server.first_chunk_of(document)
    passage = {"file_name": "守则.md", "text": "回答前先问候。", "document_id": document, "chunk_id": chunk}
    await publish(page, "persona", passage)
    assert await page.input_value("#persona-text") == "回答前先问候。"
    assert "守则.md" in await page.inner_text(".persona-warning")
    assert server.persona_of(session_in(page)) is None
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".persona-dialog", state="detached")
    assert server.persona_of(session_in(page)) is None
    await publish(page, "persona", passage)
    await page.click(".persona-dialog [type=submit]")
    await page.wait_for_selector(".persona-from:text('来自 守则.md')")
    remaining = server.persona_of(session_in(page))
    assert (remaining["document_id"], remaining["chunk_id"]) == (document, chunk)
    await page.reload()
    await page.wait_for_selector(".persona-from:text('来自 守则.md')")
    await sent_by(page, "second", 2)
    assert "回答前先问候。" in server.system()


async def test_the_card_follows_a_command_in_the_chat(page: Page, server: Served) -> None:
    """Discriminates: the card read once, when the conversation is opened."""
    await opened(page, server.url)
    await sent_by(page, f"/persona {JUDGE}")
    await page.wait_for_selector(f"{CARD} >> text={JUDGE}")
    await sent_by(page, "/persona clear", 2)
    await page.wait_for_selector("text=设定人设")


async def test_a_conversation_that_could_not_be_read_offers_a_persona_as_soon_as_it_can(
    page: Page, server: Served
) -> None:
    """Discriminates: the line that it cannot be read taken for the button of a conversation without a
    persona."""

    async def lose(route: Route) -> None:
        await route.abort()

    await opened(page, server.url)
    await sent_by(page, "first")
    one_session = f"**/sessions/{session_in(page)}"
    await page.route(one_session, lose)
    await page.reload()
    await page.wait_for_selector("text=人设暂时读不到")
    await page.unroute(one_session)
    await page.click("text=人设暂时读不到")
    await page.wait_for_selector(".persona >> text=设定人设")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_when_a_persona_is_refused_neither_it_nor_the_question_is_lost(
    page: Page, server: Served
) -> None:
    """Discriminates: the conversation that was created for it left in the list; or the box left empty."""
    before = len(server.sessions())
    error = {
        "code": "bad_request",
        "message": "text: too many tokens.",
        "retryable": False,
        "request_id": "r",
    }

    async def refuse(route: Route) -> None:
        await route.fulfill(status=422, body=json.dumps({"error": error}), content_type="application/json")

    await page.route("**/persona", refuse)
    await opened(page, server.url)
    await set_persona(page, PIRATE)
    await ask(page, "where?")
    await page.wait_for_selector(".composer-note >> text=too many tokens")
    assert await page.input_value(BOX) == "where?"
    assert len(server.sessions()) == before
    await page.unroute("**/persona")
    await page.press(BOX, "Enter")
    await answered(page)
    assert PIRATE in server.system()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_typed_text_is_still_there_after_the_dialog_was_dismissed(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await page.click("text=设定人设")
    await page.fill("#persona-text", JUDGE)
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".persona-dialog", state="detached")
    await page.click("text=设定人设")
    assert await page.input_value("#persona-text") == JUDGE
    await page.fill("#persona-text", "长" * (MAX_PERSONA_CHARS + 1))
    assert "1" in await page.inner_text(".persona-count.warning")
    assert await page.is_disabled(".persona-dialog [type=submit]")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_hostile_persona_stays_text(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await publish(page, "persona", {"file_name": HOSTILE[1], "text": HOSTILE[2]})
    assert HOSTILE[1] in await page.inner_text(".persona-warning")
    await write(page, HOSTILE[2], HOSTILE[1])
    await unfolded(page)
    assert await page.inner_text(".persona-full") == HOSTILE[2].strip()
    assert await page.inner_text(".persona-line b") == HOSTILE[1]
    assert await page.locator(".persona :is(script, img, svg:not(.icon), iframe, a)").count() == 0
    assert await page.evaluate("typeof window.__ran") == "undefined"
