"""The retrieval table of a turn: a search made now, every candidate stage by stage."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Request, Route, expect

from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.driving import SESSION_ID, TURN_ID, answer_with, answered, ask, whole_turn

TAB = "#prompt-retrieval-tab"
TURN = {"turn_id": TURN_ID, "session_id": SESSION_ID, "question": "问？", "model_id": "m"}
ROWS = ".candidate:not([hidden])"


def candidate(n: int, dropped_by: str | None = None, **changes: Any) -> dict[str, Any]:
    whole = {
        "chunk_id": f"c{n}", "file_name": f"{n}.md", "text": "前文。关键。", "heading": "概念", "page": None,
        "dense": {"rank": n, "score": 0.8}, "sparse": {"rank": None, "score": 1.5},
        "fused": {"rank": n, "score": 0.1}, "reranked": {"rank": n, "probability": 0.004},
        "budget": None if dropped_by else {"index": n, "tokens": 40}, "key_passage": "关键。",
        "kept": dropped_by is None, "dropped_by": dropped_by,
    }  # fmt: skip
    return {**whole, **changes}


async def opened(page: Page, server_url: str, *answers: dict[str, Any], turn: dict[str, Any] = TURN) -> None:
    """The table of a hand-made turn; its searches get these answers, the last one repeatedly."""
    left = list(answers)

    async def fulfil(route: Route) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        await route.fulfill(
            status=answer.get("status", 200), body=json.dumps(answer), content_type="application/json"
        )

    async def stored(route: Route) -> None:
        await route.fulfill(body=json.dumps(turn), content_type="application/json")

    await page.goto(server_url)
    await answer_with(page, whole_turn("答。"))
    await ask(page, "问？")
    await answered(page)
    await page.route("**/search", fulfil)
    await page.route("**/turns/*", stored)
    await page.click(".show-prompt")
    await page.click(TAB)


async def read_json(method: str, url: str, body: object = None) -> Any:
    async with httpx.AsyncClient() as client:
        return (await client.request(method, url, json=body)).json()


def report(*candidates: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"candidates": candidates, "reranker": "calibrated", "fell_back": False, **changes}


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_follow_up_is_searched_again_like_its_turn(page: Page, server_url: str) -> None:
    """Discriminates: the question searched without its session, parent or model; rows in another order."""
    bodies: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/search"):
            bodies.append(json.loads(request.post_data or ""))

    page.on("request", note)
    await page.goto(server_url)
    for turns, question in enumerate(("父子链是什么？", "它有什么用？"), 1):
        await ask(page, question)
        await answered(page, turns)
    first, second = [await turn.get_attribute("data-turn") for turn in await page.query_selector_all(".turn")]
    await page.click(".turn:nth-child(2) .show-prompt")
    await page.wait_for_selector(".prompt-parts")
    assert bodies == []
    await page.click(TAB)
    await page.wait_for_selector(".candidates")
    turn = await read_json("GET", f"{server_url}/turns/{second}")
    expected = turn.get("request", {}).get("rerank_top_n", 10)
    same = {"question": "它有什么用？", "session_id": turn["session_id"], "parent_turn_id": first}
    assert bodies == [{**same, "model_id": "default", "top_n": expected}]
    hits = (await read_json("POST", f"{server_url}/search", bodies[0]))["candidates"]
    names = await page.locator(".candidate .file").all_inner_texts()
    assert names == [each["file_name"] for each in hits]
    remaining = [each for each in hits if each["kept"]]
    assert f"候选 {len(hits)} 条，给模型 {len(remaining)} 条" in await page.inner_text(
        ".retrieval-body [role=status]"
    )
    assert "不是当时的那一次" in await page.inner_text(".retrieval-now")
    row = page.locator(".candidate >> nth=0")
    assert await row.locator("[data-column=tokens]").inner_text() == str(remaining[0]["budget"]["tokens"])
    assert await row.locator("[data-column=outcome]").inner_text() == "给模型 [1]"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_rows_are_selected_and_expand_to_their_chunk(page: Page, server_url: str) -> None:
    kinds = ("threshold", "top_n", "budget", "reranker")
    dropped = [candidate(n, kind, reranked=None) for n, kind in enumerate(kinds, 2)]
    await opened(page, server_url, report(candidate(1), *dropped))
    await expect(page.locator(ROWS)).to_have_count(5)
    cells = await page.locator(".candidate >> nth=0").locator("td").all_inner_texts()
    assert [cell.split() for cell in cells] == [
        ["1", "0.800"], ["–", "1.50"], ["1", "0.100"], ["1", "0.4%"], ["40"], ["给模型", "[1]"],
    ]  # fmt: skip
    outcomes = await page.locator(".outcome").all_inner_texts()
    assert outcomes[1:] == ["相关度不够", "名额已满", "窗口放不下", "重排没有返回"]
    await page.click(".row-open >> nth=0")
    assert await page.inner_text(".chunk-row:not([hidden]) mark") == "关键。"
    assert await page.get_attribute(".row-open >> nth=0", "aria-expanded") == "true"
    await page.click(".row-choice button >> nth=2")
    await expect(page.locator(ROWS)).to_have_count(4)
    assert await page.locator(".chunk-row:not([hidden])").count() == 0
    await page.click(".row-choice button >> nth=1")
    assert await page.locator(ROWS).locator(".file").all_inner_texts() == ["1.md"]
    assert await page.get_attribute(".row-choice button >> nth=1", "aria-pressed") == "true"
    assert await page.is_visible(".chunk-row mark")


async def test_a_reranker_fallback_limits_and_an_empty_search_are_shown(page: Page, server_url: str) -> None:
    limited = {**TURN, "filters": {"tags": ["合同"], "since": "2025"}}
    await opened(page, server_url, report(fell_back=True, sample_left_out=True), turn=limited)
    await page.locator(".retrieval-found", has_text="什么也没有查到").wait_for()
    summary = page.locator(".retrieval-body > [role=status]")
    assert "重排：内置" in await summary.inner_text()
    assert "没有检索示例文档" in await summary.inner_text()
    assert await summary.locator(".standing").all_inner_texts() == ["配置的重排模型没有应答，用了内置的"]
    assert await page.locator(".filter-line > *").all_inner_texts() == ["限定：", "标签 合同", "2025 起"]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_failing_search_says_so_and_can_be_retried(page: Page, server_url: str) -> None:
    refusal = {"status": 503, "error": {"code": "x", "message": "The store is away.", "retryable": True}}
    await opened(page, server_url, refusal, report(candidate(1)))
    await page.locator(".retrieval-body", has_text="The store is away.").wait_for()
    await page.click(".retrieval-body [role=status] button")
    await expect(page.locator(ROWS)).to_have_count(1)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_tabs_are_navigated_with_arrows_and_the_focus_returns(page: Page, server_url: str) -> None:
    """Discriminates: both tabs in the tab order; a panel without a name; the focus lost on Esc."""
    await opened(page, server_url, report(candidate(1)))
    selected = "document.querySelector('[role=tab][aria-selected=true]')"
    for key, chosen in (("ArrowRight", 0), ("ArrowLeft", 1), ("Home", 0), ("End", 1)):
        await page.keyboard.press(key)
        assert (
            await page.evaluate(f"[...document.querySelectorAll('[role=tab]')].indexOf({selected})") == chosen
        )
        assert await page.evaluate(f"{selected} === document.activeElement")
        assert (
            await page.evaluate(f"document.getElementById({selected}.getAttribute('aria-controls')).hidden")
            is False
        )
    assert await page.locator("[role=tab][tabindex='0']").count() == 1
    assert await page.get_by_role("tabpanel", name="检索过程").count() == 1
    assert await page.get_by_role("dialog", name="发给模型的内容").count() == 1
    await page.keyboard.press("Escape")
    await expect(page.locator(".show-prompt")).to_be_focused()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_phone_shows_the_table_as_a_list_that_is_still_a_table(page: Page, server_url: str) -> None:
    """Discriminates: a table wider than the phone; roles lost with the layout; cells without their names."""
    wide = candidate(1, file_name="很长的文件名" * 12, heading="标题" * 40, text="x" * 900)
    await opened(page, server_url, report(wide, candidate(2, "threshold")))
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.click(".row-open >> nth=0")
    assert await page.evaluate("document.querySelector('.prompt-dialog').scrollWidth - innerWidth") <= 0
    assert await page.get_by_role("table", name="候选片段").count() == 1
    assert await page.get_by_role("row").count() >= 3
    assert await page.inner_text(".candidate [data-column=dense] >> nth=0") == "语义\n1\n0.800"
    await page.evaluate("document.querySelector('#language').click()")
    assert await page.inner_text(".candidate [data-column=dense] >> nth=0") == "Semantic\n1\n0.800"
    assert "This search was run just now" in await page.inner_text(".retrieval-now")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_candidates_stay_text(page: Page, server_url: str) -> None:
    hostile = dict.fromkeys(("file_name", "heading", "key_passage", "page", "date", "source"), HOSTILE[1])
    texts = {"text": "\n".join(HOSTILE), "tags": [HOSTILE[2]]}
    odd = candidate(1, HOSTILE[3], **hostile, **texts)
    await opened(
        page, server_url, report(odd, reranker=HOSTILE[1]), turn={**TURN, "filters": {"tags": [HOSTILE[4]]}}
    )
    await page.click(".row-open")
    assert await page.inner_text(".candidate .outcome") == HOSTILE[3]
    assert await page.inner_text(".candidate .file") == HOSTILE[1]
    assert HOSTILE[0] in await page.inner_text(".chunk-text")
    assert await page.evaluate("typeof window.__ran") == "undefined"
    dangerous = ":is(script, img, iframe, object, embed, form[action], link, meta, style, [onerror])"
    assert await page.locator(f".prompt-dialog {dangerous}").count() == 0
