"""The panel that shows what was sent to the model: real prompts, and hand-made ones for rare cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page, Route

from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.driving import TURN_ID, answer_with, answered, ask, whole_turn

BODY = '{"messages":[{"role":"system","content":"你是助手。"},{"role":"user","content":"问？"}],"model":"m"}'
KEEP_WHAT_IS_COPIED = "navigator.clipboard.writeText = async (text) => { window.__copied = text; };"


def part(name: str, tokens: int, text: str | None, **changes: Any) -> dict[str, Any]:
    whole = {
        "part": name, "role": "user", "tokens": tokens, "kept": True, "reason": "", "turn_id": None,
        "chunk_id": None, "text": text, "removed": False,
    }  # fmt: skip
    return {**whole, **changes}


def prompt(**changes: Any) -> dict[str, Any]:
    whole = {
        "turn_id": TURN_ID,
        "model_id": "default",
        "layout": "one_system",
        "window": 8_192,
        "answer_tokens": 2_048,
        "prompt_tokens": 100,
        "parts": [
            part("system", 50, "你是助手。", role="system"),
            part("relevant_history", 30, "豆包对鸡肉过敏。", turn_id="t3"),
            part("knowledge", 900, None, kept=False, reason="over_budget", chunk_id="c9"),
            part("question", 20, "问？"),
        ],
        "request": {"body": BODY, "sha256": "ab12", "exact": True},
        "response": {"id": "r1", "finish_reason": "stop", "usage": {"prompt_tokens": 98}},
    }
    return {**whole, **changes}


async def opened(page: Page, server_url: str, answer: dict[str, Any], status: int = 200) -> None:
    """A finished turn with this prompt; its panel is open."""

    async def fulfil(route: Route) -> None:
        own, fields = route.request.url.split("/")[-2], f'"turn_id": "{TURN_ID}"'
        body = json.dumps(answer).replace(fields, f'"turn_id": "{own}"')
        await route.fulfill(status=status, body=body, content_type="application/json")

    await page.add_init_script(KEEP_WHAT_IS_COPIED)
    await page.goto(server_url)
    await page.route("**/turns/*/prompt", fulfil)
    await answer_with(page, whole_turn("答。"))
    await ask(page, "问？")
    await answered(page)
    await page.click(".show-prompt")
    await page.wait_for_selector(".prompt-body > *")


async def test_a_real_turn_shows_its_own_question_and_request(page: Page, server_url: str) -> None:
    """Discriminates: a panel that reads another turn's prompt; a button that stays hidden."""
    await page.goto(server_url)
    await ask(page, "父子链是什么？")
    await answered(page)
    await page.click(".show-prompt")
    await page.wait_for_selector(".prompt-parts")
    question = page.locator(".prompt-part:has(.part-name:text-is('问题'))")
    assert "父子链是什么？" in await question.inner_text()
    left_out = page.locator(".prompt-part[data-state=dropped]")
    assert await left_out.count() < 4
    assert "× " in await left_out.first.inner_text()
    assert await page.get_attribute(".prompt-state", "data-exact") == "true"
    assert "父子链是什么？" in await page.inner_text(".prompt-request pre")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_command_has_no_prompt_to_show(page: Page, server_url: str) -> None:
    """Discriminates: the button on every turn; a command described otherwise than by the server."""
    await page.goto(server_url)
    asked = ("/help", "\uff0fＨＥＬＰ me", "/Persona", "/etc/passwd 是什么\uff1f", "/helpful 是什么\uff1f")
    for turns, question in enumerate(asked, 1):
        await ask(page, question)
        await answered(page, turns)
    shown = "[...document.querySelectorAll('.show-prompt')].map((button) => !button.hidden)"
    assert await page.evaluate(shown) == [False, False, False, True, True]
    await ask(page, "/clear")
    await answered(page, len(asked) + 1)
    await page.reload()
    await answered(page)
    assert await page.evaluate(shown) == [False]


async def test_parts_fold_and_omitted_ones_say_why(page: Page, server_url: str) -> None:
    await opened(page, server_url, prompt())
    names = await page.locator(".part-name").all_inner_texts()
    assert names == ["系统提示", "相关历史", "问题", "知识库内容"]
    assert await page.inner_text(".prompt-body .uncited > summary") == "另有 1 个部分没有放进去"
    assert await page.locator(".prompt-part[data-state=dropped]").inner_text() == (
        "知识库内容\n用户\n没有放进去超出预算\n900 token"
    )
    assert await page.locator(".part-text").first.is_visible() is False
    await page.click(".prompt-part >> nth=1")
    assert await page.inner_text(".prompt-part[open] .part-text") == "豆包对鸡肉过敏。"
    facts = await page.inner_text(".prompt-facts")
    assert "一条系统消息" in facts
    assert "one_system" not in facts
    assert "8192" in facts
    assert "prompt_tokens 98" in await page.inner_text(".prompt-reply")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_request_is_copied_exactly(page: Page, server_url: str) -> None:
    await opened(page, server_url, prompt())
    assert await page.text_content(".prompt-request pre") == BODY
    await page.click(".prompt-request button")
    assert await page.evaluate("window.__copied") == BODY


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_raw_reply_is_below_the_request_if_it_is_stored(page: Page, server_url: str) -> None:
    await opened(page, server_url, prompt())
    assert await page.locator(".prompt-request").count() == 1
    raw = 'data: {"id":"r1","choices":[]}\n\ndata: [DONE]\n\n'
    await opened(page, server_url, prompt(response={"id": "r1", "raw": raw}))
    block = page.locator(".prompt-request").nth(1)
    assert "回复原文" in await block.inner_text()
    assert await block.locator("pre").text_content() == raw
    await block.locator("button").click()
    assert await page.evaluate("window.__copied") == raw


@pytest.mark.full("a journey of seconds in a real browser")
async def test_escape_closes_the_panel_and_returns_the_focus_to_the_button(
    page: Page, server_url: str
) -> None:
    await opened(page, server_url, prompt())
    await page.keyboard.press("Escape")
    await page.wait_for_selector("dialog.prompt-dialog", state="detached")
    assert await page.evaluate("document.activeElement.className") == "quiet show-prompt"
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".prompt-parts")
    await page.click(".prompt-dialog .panel-head button")
    await page.wait_for_selector("dialog.prompt-dialog", state="detached")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_content_removed_since_is_named_in_words(page: Page, server_url: str) -> None:
    deleted = part("recent_history", 12, None, removed=True, turn_id="t58")
    request = {"body": None, "sha256": "ab12", "exact": False}
    await opened(page, server_url, prompt(parts=[deleted, part("question", 20, "问？")], request=request))
    assert "1 个部分后来被删除" in await page.inner_text(".prompt-state")
    assert "已被删除" in await page.inner_text(".prompt-part[data-state=removed]")
    assert await page.locator(".prompt-request").count() == 0
    await page.evaluate("document.querySelector('#language').click()")
    assert "1 part has been deleted since" in await page.inner_text(".prompt-state")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_turn_without_a_record_and_a_refusal_are_explained(page: Page, server_url: str) -> None:
    await opened(page, server_url, {"turn_id": TURN_ID, "model_id": "m", "parts": None})
    assert await page.inner_text(".prompt-body") == "这一轮没有留下提示词的记录。"
    refusal = {
        "error": {"code": "not_found", "message": "turn_id: there is no such turn.", "retryable": False}
    }
    await opened(page, server_url, refusal, status=404)
    assert "找不到要的内容" in await page.inner_text(".prompt-body")


async def test_hostile_texts_stay_text(page: Page, server_url: str) -> None:
    """Discriminates: any part, reason or name set as markup."""
    hostile = "\n".join(HOSTILE)
    parts = [part(HOSTILE[1], 1, hostile, role=HOSTILE[1], reason=HOSTILE[1])]
    request = {"body": hostile, "sha256": HOSTILE[1], "exact": False}
    shown = prompt(model_id=HOSTILE[1], layout=HOSTILE[1], parts=parts, request=request)
    shown["response"] = {"id": HOSTILE[1], "finish_reason": HOSTILE[2], "raw": hostile}
    await opened(page, server_url, shown)
    await page.click(".prompt-part summary")
    assert await page.text_content(".part-text") == hostile
    assert await page.evaluate("typeof window.__ran") == "undefined"
    dangerous = ":is(script, img, iframe, object, embed, form[action], link, meta, style, [onerror])"
    assert await page.locator(f".prompt-dialog {dangerous}").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_phone_shows_the_panel_without_horizontal_scrolling(page: Page, server_url: str) -> None:
    await opened(page, server_url, prompt(request={"body": BODY * 20, "sha256": "a", "exact": True}))
    await page.set_viewport_size({"width": 360, "height": 740})
    wide = "document.querySelector('.prompt-dialog').scrollWidth - innerWidth"
    assert await page.evaluate(wide) <= 0
