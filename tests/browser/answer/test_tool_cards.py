"""A tool call is a card: what is sent, what came back, and whether the reader approves it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.support.driving import answered, ask
from tests.support.models.tool_stub import Call, Step, ToolStub, calling_tools
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

PROGRAM = [sys.executable, "-m", "tests.support.servers.tool_program"]


@dataclass(frozen=True)
class Tooled:
    url: str
    stub: ToolStub
    folder: Path


@pytest.fixture(scope="module")
def tooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tooled]:
    folder = tmp_path_factory.mktemp("tooled")
    with calling_tools() as stub:
        command = json.dumps([*PROGRAM, str(folder)])
        config = folder / "wenmai.toml"
        config.write_text(
            f'[llms.default]\nprovider = "openai"\nmodel = "m"\nbase_url = "{stub.url}"\napi_key = "k"\n'
            f"context_window = 32000\n[tools.notes]\ncommand = {command}\n"
        )
        environment = {"WENMAI_CONFIG": str(config), "EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
        with running_server(folder / "data", **environment) as server:
            yield Tooled(server.url, stub, folder)


TWO_CALLS: list[Call] = [
    ("c1", "notes__note", {"text": "买\u202e茶", "more": {"n": [1, "二"]}}),
    ("c2", "notes__note", {"text": "买船"}),
]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_one_call_is_approved_and_one_refused_and_both_survive_a_reload(
    page: Page, tooled: Tooled
) -> None:
    """Discriminates: a call made before the reader's approval, or after a refusal; a card lost on reload; a
    call that another tab does not learn of, or that ends when one of two is answered; arguments on one
    line."""
    tooled.stub.play(Step("", TWO_CALLS), Step("茶已记下。"))
    await page.goto(tooled.url)
    await page.click("#tools")
    await ask(page, "明天要买什么\uff1f")
    cards = page.locator(".tool-call")
    await expect(cards.and_(page.locator("[data-state=waiting]"))).to_have_count(2)
    assert not (tooled.folder / "calls").exists()
    await expect(page).to_have_title(re.compile("^（等你批准） "))
    await expect(page.locator("#announcer")).to_have_text("模型想用工具，等你批准")
    await expect(cards.nth(0).locator("dt")).to_have_text(["text", "more"])
    await expect(cards.nth(0).locator("pre").nth(1)).to_have_text('{\n  "n": [\n    1,\n    "二"\n  ]\n}')
    more_below = ("background-attachment", "local, local, scroll, scroll")  # a shadow while there is more
    await expect(cards.nth(0).locator(".tool-text").nth(0)).to_have_css(*more_below)
    for choice in (".approve", ".refuse"):  # a decision looks like a decision
        await expect(cards.nth(0).locator(choice)).to_have_css("border-top-style", "solid")
    await expect(cards.nth(0).locator("summary .icon")).to_be_visible()
    await cards.nth(0).locator(".approve").click()
    await expect(cards.nth(0)).to_have_attribute("data-state", "done")
    await expect(cards.nth(0).locator("details")).not_to_have_attribute("open")  # as after a reload
    await expect(page).to_have_title(re.compile("^（等你批准） "))
    await cards.nth(1).locator(".refuse").click()
    await answered(page)
    await expect(page).not_to_have_title(re.compile("批准"))
    assert (tooled.folder / "calls").read_text().split() == ["note"]
    for _ in range(2):
        await expect(cards.nth(0)).to_have_attribute("data-state", "done")
        await expect(cards.nth(1)).to_have_attribute("data-state", "refused")
        await expect(cards.nth(1).get_by_text("refused")).to_be_hidden()  # only the model receives this
        await expect(page.locator(".tool-asks:visible")).to_have_count(0)
        await expect(page.locator(".turn")).to_contain_text("茶已记下。")
        as_it_is = "买\\u202e茶"  # unlike what is displayed
        await expect(cards.nth(0).locator("pre").nth(0)).to_contain_text(as_it_is)
        await expect(cards.nth(0).locator("pre").nth(2)).to_contain_text("noted: 买")
        await page.reload()
        await answered(page)
    tooled.stub.play(Step("", [("c3", "notes__note", {"text": "买米"})]), Step("好。"))
    await ask(page, "还有呢\uff1f")
    await expect(cards.nth(2)).to_have_attribute("data-state", "waiting")
    await page.click("#composer .send")  # stops
    for _ in range(2):
        await answered(page, 2, status="cancelled")
        await expect(cards.nth(2)).to_have_attribute("data-state", "refused")  # the call was not made
        await page.reload()
