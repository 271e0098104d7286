"""Hostile texts through the whole of the real server: said by the model, uploaded, stored, and read again."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.branches.branching import Stubbed
from tests.browser.safety.payloads import SHAPES
from tests.browser.support.canary import Canary
from tests.browser.support.driving import answered, ask
from tests.browser.support.watching import watch

TEXTS = [shape.text for shape in SHAPES]
ALL = "\n\n".join(TEXTS)
READABLE = "".join(char for char in ALL if char.isprintable() or char == "\n")  # others are not a text file's
SIZE = 5
SHOWN = "[...document.querySelectorAll('.prose .part > *, .asked')].map((node) => node.outerHTML)"


def upload(url: str, name: str, text: str, tag: str) -> str:
    file = {"file": (name, text.encode())}
    response = httpx.post(f"{url}/documents", files=file, data={"tags": tag}, timeout=30)
    assert response.status_code == 201, response.text
    return str(response.json()["document"]["document_id"])


def remove(url: str, document_id: str) -> None:
    """Other tests ask there, too."""
    httpx.delete(f"{url}/documents/{document_id}", timeout=30).raise_for_status()


def rename(url: str, session_id: str, title: str) -> None:
    httpx.patch(f"{url}/sessions/{session_id}", json={"title": title}, timeout=30).raise_for_status()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_what_the_model_said_is_as_harmless_after_a_reload(
    page: Page, stubbed: Stubbed, canary: Canary
) -> None:
    """Discriminates: a stored answer shown by another way than a streamed one."""
    url = stubbed.url
    stubbed.stub.words = tuple(ALL[at : at + SIZE] for at in range(0, len(ALL), SIZE))
    document_id = upload(
        url,
        "a <img src=x onerror=window.__ran=1>.md",
        f"# 退款\n\n{READABLE}",
        "<svg onload=window.__ran=1>",
    )
    watched = await watch(page, url, canary)
    await page.goto(url)
    await ask(page, f"退款 {TEXTS[1]}")
    await answered(page)
    session_id = page.url.rpartition("/")[2]
    rename(url, session_id, "<img src=x onerror=window.__ran=1>\u202eeltit")
    streamed = await page.evaluate(SHOWN)
    await watched.nothing_happened()
    await page.reload()
    await answered(page)
    assert await page.evaluate(SHOWN) == streamed
    await expect(page).to_have_title(re.compile("<img src=x"))
    await watched.nothing_happened()
    remove(url, document_id)
