"""The map of branches: what it draws, how one navigates it, where it leads, and how long it takes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.branches.branching import ask_all, edit, ids, shows, shows_version
from tests.browser.support.driving import SESSION_ID, answered
from tests.browser.support.frame_costs import frame_costs

ONE, TWO, OTHER = "父子链是什么\uff1f", "它有什么用\uff1f", "怎么接入自己的模型\uff1f"
MAP, ROW = "#branches .open-map", ".map-row"
TURNS, BRANCHES = 1000, 40
READ_TREE = """async () => {
  await part("branches/map.js");
  return (await (await fetch(`/sessions/${location.hash.slice(4)}/tree`)).json()).turns;
}"""
OPEN_MAP = """async (nodes) => {
  const { BranchMap } = await part("branches/map.js");
  const { Tree } = await part("branches/tree.js");
  new BranchMap(new Tree(nodes), new Set([nodes.at(-1).turn_id]), () => {}).open();
  document.querySelector(".map-dialog").close();
}"""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_map_marks_the_branch_shown_and_goes_to_another(page: Page, server_url: str) -> None:
    """Discriminates: the turn itself taken for the branch's end; a mark left on the previous branch."""
    await page.goto(server_url)
    await ask_all(page, ONE, TWO)
    first, second = await ids(page)
    await edit(page, 1, OTHER)
    await shows(page, OTHER)
    await page.click(MAP)
    rows = page.locator(ROW)
    await expect(rows).to_have_count(3)
    assert [await row.get_attribute("data-shown") for row in await rows.all()] == ["false", "false", "true"]
    assert await rows.nth(2).get_attribute("aria-current") == "true"
    await expect(rows.nth(2)).to_be_focused()
    await page.keyboard.press("Home")
    await expect(rows.nth(0)).to_be_focused()
    assert await page.locator(f"{ROW}[tabindex='0']").count() == 1
    await page.keyboard.press("Enter")
    await shows(page, ONE, TWO)
    assert await ids(page) == [first, second]
    assert second in page.url
    await expect(page.locator(".turn:nth-child(1) .asked")).to_be_focused()
    await shows_version(page, 1, "1/2")
    await page.click(MAP)
    await expect(page.locator(f"{ROW}[aria-current]")).to_have_count(1)
    assert await rows.nth(1).get_attribute("aria-current") == "true"
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".map-dialog", state="detached")
    await expect(page.locator(MAP)).to_be_focused()


def wide_tree() -> list[dict[str, Any]]:
    """Turns in time order; each branch forks from the middle of the one before it."""
    each = TURNS // BRANCHES
    nodes = []
    for n in range(TURNS):
        parent = n - 1 if n % each else n - each // 2 - 1
        nodes.append(
            {
                "turn_id": str(UUID(int=n + 1)), "parent_turn_id": str(UUID(int=parent + 1)) if n else None,
                "status": "completed", "created_at": f"2026-01-02T08:{n // 60:02}:{n % 60:02}Z", "seq": n,
                "command": "", "has_summary": False, "question": f"问题 {n} " + "很长的问题" * 12,
            }
        )  # fmt: skip
    return nodes


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_thousand_turns_in_forty_branches_are_on_the_map_at_once(page: Page, server_url: str) -> None:
    """The goal is 100 ms of script on a quiet machine; the bound here is CPU time, with room for a slow
    machine.

    Discriminates: a date format created for each row.
    """
    tree = wide_tree()
    texts = {"question": "问题", "answer": "答。", "thinking": "", "sources": []}

    async def fulfil(route: Route) -> None:
        turns = (
            tree
            if "/tree" in route.request.url
            else [{**tree[-1], **texts, "timestamp": "", "parent_turn_id": None}]
        )
        await route.fulfill(body=json.dumps({"turns": turns}), content_type="application/json")

    await page.route(f"**/sessions/{SESSION_ID}/t*", fulfil)
    await page.goto(f"{server_url}/#/s/{SESSION_ID}")
    await answered(page)
    nodes = await page.evaluate_handle(READ_TREE)
    async with frame_costs(page) as costs:
        await nodes.evaluate(OPEN_MAP)
    assert 0 < costs.longest_ms < 500
    await page.click(MAP)
    await expect(page.locator(ROW)).to_have_count(TURNS)
    depths = await page.locator(".map-item").evaluate_all(
        "rows => rows.map(r => Number(r.style.cssText.match(/\\d+/)[0]))"
    )
    assert max(depths) < BRANCHES
    assert depths[-1] == 0
    assert await page.evaluate("document.activeElement.getBoundingClientRect().bottom < innerHeight")
    await page.keyboard.press("PageUp")
    assert (
        await page.evaluate("[...document.querySelectorAll('.map-row')].indexOf(document.activeElement)")
        == 989
    )
