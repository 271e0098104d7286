"""A question's filters and search settings: the fields of its request, and their effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page

from tests.browser.composer.composing import BOX, Served, opened, publish, sent_by, served, session_in
from tests.browser.support.profiles import profile

REFUND = "退款需要几天\uff1f"
HOSTILE_TAG = "<img src=x onerror=__ran()>"
CHIPS = ".filters .chip"
DEFAULTS = {"question", "turn_id", "stream_format", "session_id", "parent_turn_id"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("filters")) as running:
        running.add("旧规定.md", "# 退款\n\n退款需要三天。", "旧", HOSTILE_TAG)
        running.add("新规定.md", "# 退款\n\n退款需要五天。", "新")
        yield running


async def choose_tag(page: Page, tag: str) -> None:
    await page.click("#search-settings-button")
    await page.click(f".check-chip:has(input[value='{tag}'])")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#search-settings", state="hidden")


def id_of(server: Served, file_name: str) -> str:
    listed = httpx.get(f"{server.url}/documents").json()["documents"]
    return next(str(each["document_id"]) for each in listed if each["file_name"] == file_name)


def choose_last(server: Served, **choices: Any) -> None:
    """Set the choices in a separate conversation."""
    session_id = httpx.post(f"{server.url}/sessions", json={}).json()["session_id"]
    httpx.patch(f"{server.url}/sessions/{session_id}", json=choices).raise_for_status()


def session_of(server: Served, session_id: str) -> dict[str, Any]:
    return httpx.get(f"{server.url}/sessions/{session_id}").json()  # type: ignore[no-any-return]


def ask_plainly(server: Served, question: str) -> None:
    """Like a program that only begins a session and asks."""
    body = {"question": question, "stream": False}
    httpx.post(f"{server.url}/knowledge_chat_conversation", json=body, timeout=60).raise_for_status()


def sources_of(server: Served, session_id: str) -> list[set[str]]:
    """The files of each turn's sources."""
    turns = httpx.get(f"{server.url}/sessions/{session_id}/turns").json()["turns"]
    return [{source["file_name"] for source in turn["sources"]} for turn in turns]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_tag_limits_the_sources_and_its_chip_removes_the_limit(page: Page, server: Served) -> None:
    """Discriminates: `filters` left out of the request."""
    await opened(page, server.url)
    await choose_tag(page, "新")
    assert await page.inner_text(CHIPS) == "#新"
    body = await sent_by(page, REFUND)
    assert body["filters"] == {"tags": ["新"]}
    assert await page.inner_text(CHIPS) == "#新", "in view as long as it holds"
    await page.click(CHIPS)
    assert not await page.is_visible(".filters")
    assert "filters" not in await sent_by(page, REFUND, 2)
    assert sources_of(server, session_in(page)) == [{"新规定.md"}, {"新规定.md", "旧规定.md"}]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_filter_belongs_to_its_conversation(page: Page, server: Served) -> None:
    """Discriminates: the filter kept when a new conversation is started."""
    await opened(page, server.url)
    await choose_tag(page, "旧")
    await sent_by(page, REFUND)
    await page.click("#sidebar .new-chat")
    await page.wait_for_selector(".filters", state="hidden")
    await page.go_back()
    await page.wait_for_selector(CHIPS)
    await page.reload()
    assert await page.inner_text(CHIPS) == "#旧"


async def test_only_documents_chosen_elsewhere_are_searched(page: Page, server: Served) -> None:
    new = id_of(server, "新规定.md")
    await opened(page, server.url)
    await publish(page, "filter", {"document_ids": [new]})
    await page.wait_for_selector(f"{CHIPS} >> text=新规定.md")
    body = await sent_by(page, REFUND)
    assert body["filters"] == {"document_ids": [new]}
    assert sources_of(server, session_in(page)) == [{"新规定.md"}]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_dates_are_filters_too_and_never_cross(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await page.click("#search-settings-button")
    await page.fill("[name=until]", "2023-12-31")
    await page.fill("[name=since]", "2023-01-01")
    assert await page.locator(CHIPS).all_inner_texts() == ["自 2023-01-01", "至 2023-12-31"]
    await page.fill("[name=since]", "2024-05-01")
    assert await page.locator(CHIPS).all_inner_texts() == ["自 2024-05-01"]
    await page.keyboard.press("Escape")
    assert (await sent_by(page, REFUND))["filters"] == {"since": "2024-05-01"}


async def test_a_hostile_tag_stays_text(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await page.click("#search-settings-button")
    await page.click(f".check-chip:has(input[value='{HOSTILE_TAG}'])")
    assert await page.inner_text(CHIPS) == f"#{HOSTILE_TAG}"
    assert await page.locator("#dock :is(script, img, iframe, a)").count() == 0
    assert await page.evaluate("typeof window.__ran") == "undefined"


async def test_a_request_contains_only_what_differs_from_the_defaults(page: Page, server: Served) -> None:
    """Discriminates: a default sent as a field."""
    await opened(page, server.url)
    assert set(await sent_by(page, REFUND)) <= DEFAULTS


@pytest.mark.full("a journey of seconds in a real browser")
async def test_switches_and_the_number_of_passages_are_sent_and_kept(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await page.click("#thinking")
    await page.click("#insert-block")
    assert "更慢" in await page.inner_text(".composer-note")
    await page.click("#search-settings-button")
    await page.fill(".passages input", "30")
    await page.keyboard.press("Escape")
    assert "30" in await page.inner_text("#search-settings-button")
    await page.reload()
    await page.wait_for_selector("#insert-block[aria-pressed=true]")
    body = await sent_by(page, REFUND)
    chosen = {name: body[name] for name in body.keys() - DEFAULTS}
    assert chosen == {"thinking": True, "use_insert_block": True, "rerank_top_n": 30}


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_conversations_choices_apply_on_every_device_and_to_the_next_conversation(
    page: Page, server: Served, browser: Browser
) -> None:
    """Discriminates: choices kept on this device only; choices before the first question that are lost on
    their way."""
    choose_last(server, thinking=False)
    await opened(page, server.url)
    await page.wait_for_load_state("networkidle")
    await page.click("#thinking[aria-pressed=false]")
    await sent_by(page, REFUND)
    other = await (await profile(browser)).new_page()
    try:
        await opened(other, page.url)
        await other.wait_for_selector("#thinking[aria-pressed=true]")
        await other.goto(f"{server.url}/#/")
        await other.wait_for_selector(".turn", state="detached")
        await other.wait_for_selector("#thinking[aria-pressed=true]")  # once its list of conversations came
        body = await sent_by(other, REFUND)
        assert (body["thinking"], body.get("session_id")) == (True, None)
    finally:
        await other.context.close()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_last_choices_start_a_conversation_of_the_page_but_of_no_other_client(
    page: Page, server: Served
) -> None:
    """Discriminates: choices that hold for the first question only; the page's choices in the plain question
    of a program."""
    last = {"thinking": True, "temperature": 0.5, "max_tokens": 200}
    choose_last(server, **last)
    await opened(page, server.url)
    await page.fill(BOX, "not yet")
    await page.reload()
    await page.wait_for_selector("#thinking[aria-pressed=true]")
    body = await sent_by(page, REFUND)
    assert last.items() <= body.items()
    assert last.items() <= session_of(server, session_in(page)).items()
    await page.reload()
    await page.wait_for_selector("#thinking[aria-pressed=true]")
    await sent_by(page, REFUND, 2)
    assert (server.model.bodies[-1]["temperature"], server.model.bodies[-1]["max_tokens"]) == (
        0.5,
        200,
    )
    ask_plainly(server, REFUND)
    assert (server.model.bodies[-1]["temperature"], server.model.bodies[-1]["max_tokens"]) == (
        0.2,
        2_048,
    )


async def test_enter_in_the_settings_does_not_send_the_question(page: Page, server: Served) -> None:
    await opened(page, server.url)
    await page.fill(BOX, "not yet")
    await page.click("#search-settings-button")
    await page.press(".passages input", "Enter")
    assert await page.input_value(BOX) == "not yet"
    assert await page.locator(".turn").count() == 0
