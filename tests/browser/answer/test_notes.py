"""The notes that a turn's stream carried beside its answer look the same after a reload."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Page

from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live, live_server
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.waiting import wait_until

REWRITTEN = "灯塔的灯每晚亮几个小时"
NOTES = (
    """() => [...document.querySelectorAll(".turn")].map((turn) => turn.querySelector(".notes").outerHTML)"""
)


class RewritingStub(StubLLM):
    """Rewrites a question when it is asked to, and answers it otherwise."""

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        rewriting = "改写" in body["messages"][0]["content"]
        return (REWRITTEN,) if rewriting else ("资料里", "没有写。")


@pytest.fixture(scope="module")
def doubting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server whose reranker cannot be reached, and whose hits are never good enough."""
    with running_stub(RewritingStub()) as stub:
        environment = {
            "OPENAI_BASE_URL": stub.url,
            "RERANKER": "http",
            "RERANKER_URL": "http://127.0.0.1:9/rerank",
            "RERANK_SCORE_THRESHOLD": "1",
            "REWRITE_TIMEOUT_S": "60",
        }
        with live_server(tmp_path_factory.mktemp("doubting"), **environment) as started:
            yield started


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_warning_and_the_rewritten_question_survive_a_reload(page: Page, doubting: Live) -> None:
    """Discriminates: a stored turn shown without them; the order of the stored fields."""
    await page.goto(doubting.url)
    await ask(page, "灯塔的灯每晚亮多久\uff1f")
    await answered(page)
    await ask(page, "那有几个小时呢\uff1f")
    await answered(page, turns=2)
    before = await page.evaluate(NOTES)
    assert ["重排服务" in each for each in before] == [True, True]
    assert [REWRITTEN in each for each in before] == [False, True]
    await page.reload()
    await answered(page, turns=2)
    assert await page.evaluate(NOTES) == before
    await page.click("#language")
    shown = page.locator(".turn:nth-child(2) .notes li")
    assert await shown.all_inner_texts() == [
        f"Searched again for “{REWRITTEN}”.",
        "The reranker could not be reached; the built-in one was used instead.",
    ]


class SummingStub(StubLLM):
    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        return (
            ("船长姓李\n", "定在五月。") if "概括" in str(body["messages"][0]["content"])[:40] else self.words
        )


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_line_says_that_a_summary_was_made_and_opens_it(
    page: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Discriminates: a line before there is a summary, or one that is missing after a reload; another
    text."""
    with running_stub(SummingStub(words=("好的。",))) as stub:
        environment = {"OPENAI_BASE_URL": stub.url, "COMPRESS_AFTER_TOKENS": "200", "MAX_RECENT_TURNS": "1"}
        with live_server(tmp_path_factory.mktemp("summing"), **environment) as server:
            await page.goto(server.url)
            for number in range(1, 4):
                await ask(page, f"第{number}问\uff1a" + "船什么时候开\uff0c谁来开\uff0c开往哪里。" * 12)
                await answered(page, turns=number)
            assert await page.locator(".notes .text-button").count() == 0
            await asyncio.to_thread(wait_until, lambda: _has_summary(server.url))
            await ask(page, "那么\uff1f")
            await answered(page, turns=4)
            for reloaded in (False, True):
                if reloaded:
                    await page.reload()
                    await answered(page, turns=4)
                note = page.locator(".turn:nth-child(4) .notes li", has_text="轮已写成摘要")
                await note.get_by_role("button", name="看摘要").click()
                assert await page.inner_text("dialog .summary-text") == "船长姓李\n定在五月。"
                await page.get_by_role("button", name="关闭").click()
                assert await page.locator(".notes .text-button").count() == 1
            await page.click("#language")
            assert "earlier turns were summarized" in await page.inner_text(".turn:nth-child(4) .notes")


def _has_summary(url: str) -> bool:
    (session,) = httpx.get(f"{url}/sessions").json()["sessions"]
    tree = httpx.get(f"{url}/sessions/{session['session_id']}/tree").json()["turns"]
    return any(node["has_summary"] for node in tree)


async def test_an_answer_that_was_cut_says_so_now_and_after_a_reload(page: Page, live: Live) -> None:
    """Cut by the model's limit, and by a server that breaks off. Discriminates: "not answered" above a text
    that arrived; a stored turn that looks complete."""
    await page.goto(live.url)
    chunk = {"choices": [{"index": 0, "delta": {"content": "到此"}, "finish_reason": "length"}]}
    live.says(raw=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
    await ask(page, QUESTION)
    await answered(page)
    live.says("说到", "一半", cut=True)
    await ask(page, QUESTION)
    await answered(page, 2, "failed")
    for reloaded in (False, True):
        ends = await page.locator(".progress .ended").all_inner_texts()
        assert ends == ["已到长度上限\uff0c回答在此截断", "回答中途断了"]
        assert await page.locator(".prose").all_inner_texts() == ["到此", "说到一半"]
        assert "断了" in await page.inner_text(".turn:nth-child(2) .error-card .cause")
        if not reloaded:
            await page.reload()
            await answered(page, 2, "failed")
    await page.click("#language")
    assert "broke off" in await page.inner_text(".error-card .cause")
