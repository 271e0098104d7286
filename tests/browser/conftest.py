"""A real Chromium on the page of the real server; every test here skips where Chromium is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason=f"{CHROMIUM} is not here")
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        if not CHROMIUM.exists():
            item.add_marker(missing)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A fresh profile of a Chinese reader. The test fails on an error that a script did not catch."""
    errors: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = await browser.new_context(locale="zh-CN", viewport={"width": 1240, "height": 860})
        opened = await context.new_page()
        opened.set_default_timeout(30_000)
        opened.on("pageerror", lambda error: errors.append(str(error)))
        yield opened
        await browser.close()
    assert errors == []
