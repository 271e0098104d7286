"""Conversations for the page to list, imported over HTTP, and what its list shows of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
from playwright.async_api import Page

TITLES = ".session-title"


def import_session(url: str, title: str, *, days_ago: float = 0, turns: int = 1, hold: bool = False) -> str:
    """Import a conversation whose turns are that old; returns its session_id."""
    at = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat()
    asked = [
        {"question": f"第 {n} 个问题", "answer": f"回答 {n}", "timestamp": at} for n in range(1, turns + 1)
    ]
    reply = httpx.post(
        f"{url}/sessions/import", json={"title": title, "hold": hold, "turns": asked}, timeout=30
    )
    reply.raise_for_status()
    return str(reply.json()["session_id"])


def stored(url: str, session_id: str) -> httpx.Response:
    return httpx.get(f"{url}/sessions/{session_id}", timeout=30)


def erase(url: str, session_id: str) -> None:
    httpx.delete(f"{url}/sessions/{session_id}", timeout=30).raise_for_status()


def row(session_id: str) -> str:
    return f".session[data-session='{session_id}']"


async def open_menu(page: Page, session_id: str) -> None:
    await page.hover(row(session_id))
    await page.click(f"{row(session_id)} .row-menu")
    await page.wait_for_selector(".menu")


async def choose(page: Page, words: str) -> None:
    await page.click(f".menu-item:has-text('{words}')")


async def answered_with(page: Page, words: str) -> None:
    await page.wait_for_selector(f"#notice:has-text('{words}')")


async def return_to_tab(page: Page) -> None:
    """The reader returns from another tab."""
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def titles(page: Page) -> list[str]:
    return await page.locator(TITLES).all_inner_texts()
