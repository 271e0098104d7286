"""In a session of several branches the older ones can be reached from the page, and continued."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.branches.branching import ask_all, click_action, ids, sent_by, shows
from tests.browser.composer.composing import Served
from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.conversations import import_session
from tests.browser.support.driving import SESSION_ID, answered, ask

FIRST = "父子链是什么\uff1f"
SECOND = "怎么接入自己的模型\uff1f"
MAP, NEWEST, ROWS = "#branches .open-map", "#branches .newest", ".map-row"


async def open_on_map(page: Page, row: int) -> None:
    """Open the branch through the n-th turn of the map, counted from 0."""
    await page.click(MAP)
    await page.click(f"{ROWS} >> nth={row}")
    await page.wait_for_selector(".map-dialog", state="detached")


def node(n: int, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    whole = {
        "turn_id": str(UUID(int=n)), "parent_turn_id": str(UUID(int=parent)) if parent else None,
        "status": "completed", "created_at": f"2026-01-{n:02}T08:00:00Z", "seq": n, "command": "",
        "has_summary": False,
    }  # fmt: skip
    return {**whole, **changes}


def turn(of: dict[str, Any]) -> dict[str, Any]:
    texts = {"question": of["turn_id"], "answer": "答。", "thinking": "", "sources": []}
    return {**of, **texts, "timestamp": of["created_at"]}


async def open_session(page: Page, server_url: str, tree: list[dict[str, Any]]) -> None:
    """A hand-made session, of whose tree the page shows the last turn."""

    async def fulfil(route: Route) -> None:
        whole = "/tree" in route.request.url
        turns = tree if whole else [turn(tree[-1])]
        await route.fulfill(body=json.dumps({"turns": turns}), content_type="application/json")

    await page.route(f"**/sessions/{SESSION_ID}/t*", fulfil)
    await page.goto(f"{server_url}/#/s/{SESSION_ID}")
    await answered(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_conversation_before_clear_can_be_reached_and_continued(page: Page, server_url: str) -> None:
    """Discriminates: a branch shown without its turn as the next one's parent; a line left unchanged."""
    await page.goto(server_url)
    await ask_all(page, FIRST, "/clear", SECOND)
    first = await page.get_attribute(".turn", "data-turn")
    assert await page.is_visible("#branches") is False
    await page.reload()
    await shows(page, SECOND)
    assert await page.inner_text(MAP) == "分支图\uff082 个分支\uff09"
    assert await page.locator("#branches button").count() == 1
    await open_on_map(page, 0)
    await shows(page, FIRST)
    assert await page.inner_text(NEWEST) == "最新的对话"
    sent = sent_by(page)
    await ask(page, "它有什么用\uff1f")
    await answered(page, 2)
    assert [body["parent_turn_id"] for body in sent] == [first]
    await page.wait_for_selector(NEWEST, state="detached")
    assert await page.locator(MAP).count() == 1
    await page.reload()
    await shows(page, FIRST, "它有什么用\uff1f")
    await open_on_map(page, 2)
    await shows(page, SECOND)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_on_a_branch_each_completed_question_becomes_the_parent_and_clear_starts_over(
    page: Page, server_url: str
) -> None:
    """Discriminates: an unchanged parent; a command as the parent; a /clear that continues the branch."""
    await page.goto(server_url)
    await ask_all(page, FIRST, "/clear", SECOND)
    await page.reload()
    await open_on_map(page, 0)
    await shows(page, FIRST)
    sent = sent_by(page)
    for turns, question in enumerate(("一\uff1f", "/help", "二\uff1f", "/clear", "三\uff1f"), 2):
        await ask(page, question)
        await answered(page, turns)
    ids = [await node.get_attribute("data-turn") for node in await page.query_selector_all(".turn")]
    assert [body["parent_turn_id"] for body in sent] == [ids[0], ids[1], ids[1], ids[3], None]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_after_clear_alone_the_next_question_begins_a_new_root(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await ask_all(page, FIRST, "/clear")
    await page.reload()
    await shows(page, "/clear")
    assert await page.locator(MAP).count() == 1
    sent = sent_by(page)
    await ask(page, SECOND)
    await answered(page, 2)
    assert [body["parent_turn_id"] for body in sent] == [None]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_keyboard_goes_to_a_branch_and_back(page: Page, server_url: str) -> None:
    """Discriminates: a line that loses the focus when it is redrawn."""
    await page.goto(server_url)
    await ask_all(page, FIRST, "/clear", SECOND)
    await page.reload()
    await shows(page, SECOND)
    await page.focus(".asked + .meta button:visible")
    await page.keyboard.press("Shift+Tab")
    assert await page.evaluate("document.activeElement.closest('#branches') !== null")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f"{ROWS}:focus")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await shows(page, FIRST)
    await page.wait_for_selector(".asked:focus")
    await page.keyboard.press("Shift+Tab")
    assert await page.evaluate("document.activeElement.className") == "text-button newest"
    await page.keyboard.press("Enter")
    await shows(page, SECOND)
    assert await page.evaluate("document.activeElement.className") == "open-map"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_session_of_one_branch_has_no_line_and_leaves_the_parent_to_the_server(
    page: Page, server_url: str
) -> None:
    """Discriminates: a `/help` beside the branch taken for an earlier conversation."""
    await page.goto(server_url)
    sent = sent_by(page)
    await ask_all(page, FIRST, "/help", "它有什么用\uff1f")
    await page.reload()
    await shows(page, FIRST, "它有什么用\uff1f")
    await ask(page, "还有呢\uff1f")
    await answered(page, 3)
    assert await page.is_visible("#branches") is False
    assert len(sent) == 4
    assert not any("parent_turn_id" in body for body in sent)


async def test_the_map_has_every_branch_and_the_current_one_keeps_its_column(
    page: Page, server_url: str
) -> None:
    """Discriminates: a level per turn; side branches below the branch that continues; a row for a `/help`."""
    help_ = node(17, parent=16, command="help")
    tree = [node(1), node(2, parent=1), *(node(n, parent=1) for n in range(3, 15)), node(15, parent=2)]
    await open_session(page, server_url, [*tree, node(16, parent=15), help_])
    assert await page.inner_text(MAP) == "分支图\uff0813 个分支\uff09"
    await page.click(MAP)
    await page.wait_for_selector(ROWS)
    days = [int(text.split("月")[1].split("日")[0]) for text in await page.locator(ROWS).all_text_contents()]
    depths = await page.locator(".map-item").evaluate_all("rows => rows.map(r => r.style.cssText.at(-2))")
    assert days == [1, *range(3, 15), 2, 15, 16]
    assert depths == ["0", *"1" * 12, "0", "0", "0"]
    await page.keyboard.press("Escape")
    await page.click("#language")
    assert await page.inner_text(MAP) == "Map of branches (13)"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_hostile_tree_stays_text_and_a_phone_shows_all_of_it(page: Page, server_url: str) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    odd = [
        node(n, created_at="<b>never</b>", turn_id=f"{HOSTILE[n]}{n}?&/../", status=HOSTILE[n])
        for n in range(12)
    ]
    named = [node(1, turn_id=str(UUID(int=n)), question=text) for n, text in enumerate(HOSTILE, 100)]
    loop = [node(12, parent=13), node(13, parent=12)]
    await open_session(page, server_url, [*odd, *named, *loop, node(14)])
    await page.click(MAP)
    assert await page.locator(".map-question").first.text_content() == "未命名的对话"
    assert set(await page.locator(".map-question").all_text_contents()) >= set(HOSTILE)
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await page.evaluate("document.querySelector('.map-rows').scrollWidth - innerWidth") <= 0
    await page.click(f"{ROWS} >> nth=0")
    await page.wait_for_timeout(300)  # the scrolling to the turn has ended
    assert await page.evaluate("typeof window.__ran") == "undefined"


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("tree", ["missing", "refused"])
async def test_a_tree_that_cannot_be_read_leaves_the_page_unchanged(
    page: Page, server_url: str, tree: str
) -> None:
    async def fail(route: Route) -> None:
        await (route.abort() if tree == "missing" else route.fulfill(status=503, body="{}"))

    await page.goto(server_url)
    await ask_all(page, FIRST, "/clear", SECOND)
    await page.route("**/tree", fail)
    await page.reload()
    await shows(page, SECOND)
    assert await page.is_visible("#branches") is False


UNCOVERED = """(asked) => {
  const { left, top } = asked.getBoundingClientRect();
  return asked.contains(document.elementFromPoint(left + 2, top + 2));
}"""


async def test_a_link_to_a_turn_shows_it_within_the_whole_conversation(page: Page, server: Served) -> None:
    """Discriminates: the branch cut at the turn; a branch scrolled to its end; the question below the
    conversation's title; a reload that takes a reader who continues from an earlier turn back to the whole
    conversation."""
    session_id = import_session(server.url, "六十轮", turns=60)
    await page.goto(f"{server.url}/#/s/{session_id}")
    await answered(page, 60)
    fifth = (await ids(page))[4]
    await page.goto("about:blank")
    await page.goto(f"{server.url}/#/s/{session_id}/{fifth}")
    await answered(page, 60)
    asked = page.locator(".turn:nth-child(5) .asked")
    await expect(asked).to_be_in_viewport()
    assert await asked.evaluate(UNCOVERED)
    await expect(page.locator(".turn:nth-child(60) .asked")).not_to_be_in_viewport()
    assert await page.locator(".continuing").inner_text() == ""
    await click_action(page, 5, "continue-here")
    await expect(page.locator(".turn")).to_have_count(5)
    await page.reload()
    await answered(page, 5)
    await expect(page.locator(".turn")).to_have_count(5)
