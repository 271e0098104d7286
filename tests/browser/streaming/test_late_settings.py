"""Replies about personas, limits, models and documents that arrive when the reader has moved on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.composer.composing import BOX, Served, served, session_in
from tests.browser.documents.panel import open_panel
from tests.browser.documents.panel import row as document_row
from tests.browser.support.conversations import import_session
from tests.browser.support.driving import ASK, answered, ask
from tests.browser.support.late import hold, session_at

PIRATE = "你是一名海盗\uff0c说话总带着海风的味道。"
CARD, ADD = ".persona-card", ".persona > .text-button"
POST = r"/knowledge_chat_conversation$"
DOCUMENTS = r"/documents\?"
OPEN = "#documents[open]"
PICKERS = ".search-settings .picker:not(.dates)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("later")) as running:
        running.add("灯塔.md", "# 灯塔\n\n灯塔的灯每晚亮十二个小时。\n", "海边")
        yield running


async def write(page: Page) -> None:
    """The persona, in the open dialog."""
    await page.fill("#persona-text", PIRATE)
    await page.click(".persona-dialog [type=submit]")
    await page.wait_for_selector(".persona-dialog", state="detached")


def become(server: Served, session_id: str, persona: dict[str, str]) -> None:
    httpx.put(f"{server.url}/sessions/{session_id}/persona", json=persona).raise_for_status()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_is_not_changed_in_a_conversation_that_was_opened_later(
    page: Page, server: Served
) -> None:
    """Discriminates: the dialog for the conversation that is on the page when the file's name arrives."""
    document = server.add("人物.md", f"# 海盗\n\n{PIRATE}\n")
    one, two = import_session(server.url, "有人设的"), import_session(server.url, "没有人设的")
    become(server, one, {"text": PIRATE, "document_id": document})
    name = await hold(page, rf"/documents/{document}$", times=2)
    await page.goto(f"{server.url}/#/s/{one}")
    await page.click(f"{CARD} > summary")
    await page.click(".persona-acts button >> nth=0")
    for _ in range(2):
        await name.started.acquire()
    await page.goto(f"{server.url}/#/s/{two}")
    await page.wait_for_selector(ADD)
    await name.arrive(page)
    assert await page.locator(".persona-dialog").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_reply_from_before_a_persona_was_set_does_not_remove_it(page: Page, server: Served) -> None:
    """Discriminates: the last reply taken for the newest."""
    session_id = import_session(server.url, "人设")
    await page.goto(f"{server.url}/#/s/{session_id}")
    await page.wait_for_selector(ADD)
    await answered(page, 1)
    before = await hold(page, session_at(session_id))
    await ask(page, "你是谁\uff1f")
    await before.started.acquire()
    await page.click(ADD)
    await write(page)
    await page.wait_for_selector(CARD)
    await before.arrive(page)
    assert await page.locator(CARD).count() == 1


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_belongs_to_the_conversation_that_began_while_it_was_written(
    page: Page, server: Served
) -> None:
    """Discriminates: a persona that is kept for the next new conversation."""
    await page.goto(server.url)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, "你是谁\uff1f")
    await post.started.acquire()
    await page.click(ADD)
    post.release.set()
    await answered(page, 1)
    await write(page)
    await page.wait_for_selector(CARD)
    assert server.persona_of(session_in(page))["text"] == PIRATE


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_set_while_the_first_question_is_being_sent_is_kept(
    page: Page, server: Served
) -> None:
    """Discriminates: a persona that disappears with the draft when the conversation gets its id."""
    await page.goto(server.url)
    post = await hold(page, POST, method="POST", reaches=False)
    await ask(page, "你是谁\uff1f")
    await post.started.acquire()
    await page.click(ADD)
    await write(page)
    async with page.expect_response(re.compile(r"/persona$")):
        post.release.set()
    await answered(page, 1)
    await expect(page.locator(CARD)).to_contain_text("海盗")
    await page.reload()
    await expect(page.locator(CARD)).to_contain_text("海盗")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_that_is_cleared_late_leaves_the_focus_where_it_is(
    page: Page, server: Served
) -> None:
    """Discriminates: the focus on a button, although the reader is writing a question."""
    session_id = import_session(server.url, "人设")
    become(server, session_id, {"text": PIRATE})
    clearing = await hold(page, r"/persona$", method="DELETE")
    await page.goto(f"{server.url}/#/s/{session_id}")
    await page.click(f"{CARD} > summary")
    await page.click(".persona-acts >> text=清除")
    await clearing.started.acquire()
    await page.click(BOX)
    await page.keyboard.type("one half")
    clearing.release.set()
    await page.wait_for_selector(ADD)
    await page.keyboard.type(", the other")
    assert await page.input_value(BOX) == "one half, the other"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_goes_to_the_chosen_model_before_the_models_are_listed(
    page: Page, server: Served
) -> None:
    """Discriminates: the default model, whatever the reader chose the last time."""

    async def chosen_last(route: Route) -> None:
        listed = await route.fetch()
        await route.fulfill(response=listed, json={**await listed.json(), "choices": {"model_id": "mine"}})

    await page.route(re.compile(r"/sessions\?"), chosen_last)
    listing = await hold(page, r"/models$")
    await page.goto(server.url)
    await listing.started.acquire()
    await page.wait_for_selector("#sessions:not([aria-busy])")
    async with page.expect_request(ASK) as asked:
        await ask(page, "灯塔的灯每晚亮多久\uff1f")
    assert '"model_id":"mine"' in str((await asked.value).post_data)
    await listing.arrive(page)
    await answered(page, 1, "failed")
    async with page.expect_request(ASK) as asked:
        await ask(page, "灯塔在哪里\uff1f")
    assert '"mine"' not in str((await asked.value).post_data), "it is not among them"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_search_settings_opened_twice_offer_each_tag_once(page: Page, server: Served) -> None:
    """Discriminates: two replies that both add their choices to the panel."""
    await page.goto(server.url)
    tags = await hold(page, r"/tags$")
    await page.click("#search-settings-button")
    await tags.started.acquire()
    await page.keyboard.press("Escape")
    await page.click("#search-settings-button")
    await page.wait_for_selector(PICKERS)
    await tags.arrive(page)
    assert await page.locator(PICKERS).count() == 1


async def erase(page: Page, button: str) -> None:
    await page.click(button)
    await page.click(".small-dialog .danger")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_list_older_than_a_deletion_does_not_bring_the_document_back(
    page: Page, server: Served
) -> None:
    """Discriminates: the last reply taken for the newest."""
    server.add("要删的.md", "# 一\n\n一段话。\n")
    deleted = document_row("要删的.md")
    await open_panel(page, server.url)
    await page.wait_for_selector(deleted)
    await page.keyboard.press("Escape")
    await page.wait_for_selector(OPEN, state="detached")
    documents = await hold(page, DOCUMENTS)
    await page.click(".open-documents")
    await documents.started.acquire()
    await erase(page, f"{deleted} .document-remove")
    await page.wait_for_selector(deleted, state="detached")
    await documents.arrive(page)
    assert await page.locator(deleted).count() == 0
    await page.wait_for_selector(document_row("灯塔.md"))


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_deletion_that_ends_late_leaves_the_edited_document_open(page: Page, server: Served) -> None:
    """Discriminates: back to the list whatever is open, and the typed text lost."""
    document = server.add("先删的.md", "# 二\n\n两段话。\n")
    await open_panel(page, server.url)
    erasing = await hold(page, rf"/documents/{re.escape(document)}$", method="DELETE")
    await erase(page, f"{document_row('先删的.md')} .document-remove")
    await erasing.started.acquire()
    await page.click(f"{document_row('灯塔.md')} .document-open")
    await page.click("[data-action=edit]")
    await page.fill(".document-form input >> nth=0", "写到一半")
    await erasing.arrive(page)
    assert await page.input_value(".document-form input >> nth=0") == "写到一半"
