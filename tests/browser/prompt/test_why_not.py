"""Why was my document not found? The page asks the server and shows how far its best passages came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.prompt.test_retrieval_table import TAB, candidate, opened, read_json, report
from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.driving import answered, ask

ASK = ".why-row .button"


def chunk(**changes: Any) -> dict[str, Any]:
    lists = {
        "dense": {"rank": 137, "score": 0.79, "last_score": 0.84, "kept": False},
        "sparse": None, "fused": None, "reranked": None, "budget": None,
    }  # fmt: skip
    whole = {**candidate(1), **lists, "stage": "not_found_by_any_list", "alone_probability": 0.127}
    return {**whole, **changes}


async def with_documents(page: Page, *documents: dict[str, Any]) -> None:
    async def listed(route: Route) -> None:
        body = json.dumps({"documents": documents, "next": None})
        await route.fulfill(body=body, content_type="application/json")

    await page.route("**/documents?**", listed)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_real_document_that_was_not_found_is_explained_as_by_the_server(
    page: Page, server_url: str
) -> None:
    await page.goto(server_url)
    await ask(page, "父子链是什么？")
    await answered(page)
    await page.click(".show-prompt")
    await page.click(TAB)
    await page.click(".why-not summary")
    await page.wait_for_selector(".why-not option", state="attached")
    documents = (await read_json("GET", f"{server_url}/documents?limit=500"))["documents"]
    expected = next(each for each in documents if each["external_id"] == "en/introduction.md")
    assert len(documents) == await page.locator(".why-not option").count()
    assert (
        await page.locator(f"option[value='{expected['document_id']}']").inner_text()
        == "introduction.md (en/introduction.md)"
    )
    await page.select_option(".why-not select", expected["document_id"])
    async with page.expect_response("**/search") as response:
        await page.click(ASK)
    explained = (await (await response.value).json())["document"]
    assert explained["file_name"] == "introduction.md"
    await expect(page.locator(".why-message")).to_have_text(explained["message"])
    await expect(page.locator(".why-chunks > li")).to_have_count(len(explained["chunks"]))


@pytest.mark.full("a journey of seconds in a real browser")
async def test_each_list_shows_the_rank_and_the_score_to_beat(page: Page, server_url: str) -> None:
    """Discriminates: a rank without the score of the last accepted one; a missing score shown as zero."""
    document = {"stage": "not_found_by_any_list", "message": "换个问法。", "error": None, "chunks": [chunk()]}
    await with_documents(page, {"document_id": "d1", "file_name": "我的.md"})
    await opened(page, server_url, report(candidate(1)), report(candidate(1), document=document))
    await page.click(".why-not summary")
    await page.click(ASK)
    assert await page.inner_text(".why-stage") == "结果：两种检索都没找到"
    assert await page.inner_text(".why-message") == "换个问法。"
    assert await page.locator(".why-lists dd").all_inner_texts() == [
        "第 137 名，0.790（入选的最后一名 0.840）",
        "这个列表里没有它",
        "没有走到这一步",
        "没有走到这一步",
        "重排 13%",
    ]
    await page.evaluate("document.querySelector('#language').click()")
    assert await page.inner_text(".why-stage") == "Outcome: found by neither search"


async def test_hostile_documents_and_reasons_stay_text(page: Page, server_url: str) -> None:
    bad = chunk(stage=HOSTILE[2], heading=HOSTILE[1], text="\n".join(HOSTILE), key_passage=HOSTILE[1])
    document = {"stage": HOSTILE[1], "message": HOSTILE[1], "error": HOSTILE[2], "chunks": [bad]}
    same = [{"document_id": f"d{n}", "file_name": HOSTILE[1], "external_id": HOSTILE[n]} for n in (1, 2)]
    await with_documents(page, *same)
    await opened(page, server_url, report(candidate(1)), report(document=document))
    await page.click(".why-not summary")
    await page.click(ASK)
    assert await page.inner_text(".why-message") == HOSTILE[1]
    assert HOSTILE[1] in await page.inner_text(".why-not option >> nth=0")
    assert await page.evaluate("typeof window.__ran") == "undefined"
    dangerous = ":is(script, img, iframe, object, embed, form[action], link, meta, style, [onerror])"
    assert await page.locator(f".prompt-dialog {dangerous}").count() == 0
