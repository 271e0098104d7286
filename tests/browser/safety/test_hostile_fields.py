"""Every hostile shape in every other place: names, titles, errors, sources, prompts, and all that opens."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page

from tests.browser.safety.hostile_server import TEXTS, serve_hostile, sources
from tests.browser.support.canary import Canary
from tests.browser.support.driving import (
    SESSION_ID,
    answer_in_turn,
    answered,
    ask,
    sse_body,
    stream_in_pieces,
    whole_turn,
)
from tests.browser.support.watching import watch

# Presses every button and opens everything that opens, a few of each kind, twice: menus contain buttons too.
PRESS = """async () => {
  const frame = () => new Promise((resolve) => setTimeout(() => requestAnimationFrame(resolve)));
  const kind = (node) => `${node.localName} ${node.className} ${node.dataset.i18nLabel} ${node.dataset.i18n}`;
  const leaves = ".new-chat, .send, #language, #theme, .newest, .session-link, [type=submit]";
  const pressed = new Map();
  for (let round = 0; round < 2; round++) {
    for (const node of document.querySelectorAll("button:not([disabled]), summary, [role=tab]")) {
      const before = pressed.get(kind(node)) ?? 0;
      if (before >= 2 || !node.isConnected || !node.checkVisibility() || node.matches(leaves)) continue;
      pressed.set(kind(node), before + 1);
      node.click();
      await frame();
    }
  }
  for (const box of document.querySelectorAll("details")) box.open = true;
  await frame();
  return [...pressed.keys()];
}"""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_stored_conversation_of_hostile_parts_stays_text_whatever_is_opened(
    page: Page, bare_url: str, canary: Canary
) -> None:
    """Discriminates: a `textContent` of the page changed to `innerHTML` (with the policy's Trusted Types
    off)."""
    watched = await watch(page, bare_url, canary)
    await serve_hostile(page)
    await page.goto(f"{bare_url}/#/s/{SESSION_ID}")
    await answered(page)
    await page.wait_for_selector(".session >> nth=20", state="attached")
    assert TEXTS[1] in (await page.text_content(".asked") or "")
    await watched.assert_nothing_happened()
    assert len(await page.evaluate(PRESS)) > 10
    await watched.assert_nothing_happened()


async def test_hostile_titles_in_confirmations_are_plain_text(
    page: Page, bare_url: str, canary: Canary
) -> None:
    """Discriminates: a name's bidi control characters (RLO) left in a sentence of ours."""
    watched = await watch(page, bare_url, canary)
    await page.goto(bare_url)
    ask_all = """async (texts) => {
      const { confirmRemoval } = await part("base/dialogs.js");
      for (const text of texts) confirmRemoval("deleteSession", { title: text, n: 3 });
      for (const text of texts) confirmRemoval("deleteDocument", { name: text });
    }"""
    await page.evaluate(ask_all, TEXTS[1::3])
    await page.wait_for_selector("dialog[open]")
    await watched.assert_nothing_happened()
    reply = "".join(await page.locator("dialog[open] p").all_text_contents())
    assert "gpj.exe" in reply
    assert "\u202e" not in reply


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_stages_thinking_and_sources_of_a_stream_stay_text(
    page: Page, bare_url: str, canary: Canary
) -> None:
    stages = [("STATUS", {"stage": text, "message": text}) for text in TEXTS]
    thinking = [("THINK", text.replace("\r", "")) for text in TEXTS]
    watched = await watch(page, bare_url, canary)
    await stream_in_pieces(page, 64)
    await page.goto(bare_url)
    body = whole_turn("见 [1]", sources=sources(TEXTS), before=[*stages, *thinking])
    await answer_in_turn(page, [body])
    await ask(page, "<img src=x onerror=window.__ran=1>")
    await answered(page)
    await page.evaluate(PRESS)
    assert await page.text_content(".asked") == "<img src=x onerror=window.__ran=1>"
    assert await page.locator(".source").count() >= 20
    await watched.assert_nothing_happened()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_errors_of_a_stream_and_of_a_refusal_stay_text(
    page: Page, bare_url: str, canary: Canary
) -> None:
    texts = TEXTS[::16]
    watched = await watch(page, bare_url, canary)
    await page.goto(bare_url)
    fault = {"stage": "error", "code": TEXTS[1], "retryable": True, "request_id": TEXTS[1]}
    bodies = [
        sse_body([("SESSION", SESSION_ID), ("STATUS", fault), ("ERROR", text), ("DONE", "")])
        for text in texts
    ]
    await answer_in_turn(page, bodies)
    for number, _ in enumerate(texts, 1):
        await ask(page, "?")
        await answered(page, turns=number, status="failed")
    error = {"code": TEXTS[1], "message": TEXTS[2], "retryable": False, "request_id": TEXTS[1]}
    await page.route(
        "**/knowledge_chat_conversation",
        lambda route: route.fulfill(
            status=422, body=json.dumps({"error": error}), content_type="application/json"
        ),
    )
    await ask(page, "?")
    await page.locator(".error-card", has_text=TEXTS[2]).first.wait_for()
    await watched.assert_nothing_happened()
