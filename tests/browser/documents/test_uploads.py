"""Files being uploaded: every stage in words, failures, retries, the key, three at a time."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from playwright.async_api import Page, Request, Route, expect

from tests.browser.documents.panel import (
    DRAG_OUT,
    a_file,
    answer,
    choose,
    document,
    job,
    lists,
    open_panel,
    replying,
    row,
    upload_row,
    words,
)
from tests.browser.support.late import hold

UPLOADS = "**/documents"
NAME = "指南.md"
STATE = f"{upload_row(NAME)} .document-state"
ACCEPTED = {"document": document(status="ingesting"), "job_id": job("waiting")["job_id"], "existing": False}
# Reports all bytes as sent as soon as they are handed over: the page cannot learn otherwise of a held-up
# request.
SENT_AT_ONCE = """window.XMLHttpRequest = class extends XMLHttpRequest {
  send(body) {
    super.send(body);
    this.upload.dispatchEvent(new ProgressEvent("progress", { loaded: 9, total: 9 }));
  }
};"""
# A page without documents checks again later, and would take the jobs made up here for others' jobs.
OTHERS = [document("别的.md")]
OUTAGE = {"error": {"code": "store_unavailable", "message": "The store does not answer.", "retryable": True}}


async def streaming(page: Page, *jobs: dict[str, Any]) -> None:
    """The job's stream sends these events and ends."""
    frames = "".join(f"event: job\ndata: {json.dumps(one)}\n\n" for one in jobs)

    async def fulfil(route: Route) -> None:
        await route.fulfill(body=frames, content_type="text/event-stream; charset=utf-8")

    await page.route("**/jobs/*/stream", fulfil)
    await answer(page, "**/jobs", {"jobs": list(jobs[-1:])})


async def test_a_retry_says_why_and_when(page: Page, server_url: str) -> None:
    """Discriminates: the server's sentence instead of ours; a stage without words."""
    await lists(page, OTHERS)
    await replying(page, "POST", UPLOADS, (201, ACCEPTED))
    waits = {"error": "The store does not answer.", "error_code": "store_unavailable", "attempt": 2}
    await streaming(page, job("retrying", next_try_at="2026-01-31T08:00:08Z", **waits))
    await open_panel(page, server_url)
    await choose(page, a_file(NAME, "x"))
    retrying = f"{upload_row(NAME)}[data-stage=retrying]:has([data-action=cancel])"  # of this page
    await page.wait_for_selector(retrying)
    reply = await words(page, STATE)
    assert "存储暂时不可用" in reply
    assert "第 3 次" in reply
    assert ":08" in reply


@pytest.mark.full("a journey of seconds in a real browser")
async def test_every_stage_has_words_in_both_languages(page: Page, server_url: str) -> None:
    await lists(page, OTHERS)
    await open_panel(page, server_url)
    text = {}
    for stage in ("waiting", "parsing", "embedding", "storing", "verifying"):
        job_id = str(uuid.uuid4())
        await replying(page, "POST", UPLOADS, (201, {**ACCEPTED, "job_id": job_id}))
        await streaming(page, job(stage, job_id=job_id, done=1))
        await choose(page, a_file(NAME, stage))
        await page.wait_for_selector(f"{upload_row(NAME)}[data-stage={stage}]")
        chinese = await words(page, STATE)
        await page.evaluate("document.querySelector('#language').click()")
        text[stage] = (chinese, await words(page, STATE))
        await page.evaluate("document.querySelector('#language').click()")
        await streaming(page, job("cancelled", job_id=job_id))
        await page.click(f"{upload_row(NAME)}[data-state=cancelled] [data-action=dismiss]")
    assert text["embedding"] == ("正在建立索引 1/3", "Indexing 1/3")
    assert text["storing"] == ("正在保存", "Storing")
    assert len(set(text.values())) == 5


async def test_a_failed_upload_is_sent_again_from_its_row(page: Page, server_url: str) -> None:
    """Discriminates: no retry for what may pass; the row of the first try left beside the document; a screen
    reader that announces two documents, or a failure that has been resolved (an error of the page)."""
    await lists(page, OTHERS)
    await replying(page, "POST", UPLOADS, (503, OUTAGE), (201, ACCEPTED))
    await streaming(page, job("embedding"), job("done", done=3))
    await answer(page, f"{server_url}/documents/*", document())
    await open_panel(page, server_url)
    await choose(page, a_file(NAME, "x"))
    await page.wait_for_selector(f"{upload_row(NAME)}[data-state=failed]")
    assert "存储暂时不可用" in await words(page, STATE)
    await page.click(f"{upload_row(NAME)} [data-action=retry]")
    await page.wait_for_selector(row(NAME))
    assert await page.locator(".upload").count() == 0
    announcer = page.locator(".panel [role=status]")
    await expect(announcer.filter(has_text=f"{NAME} 已读入，3 个片段")).to_have_count(1)


async def test_cancelling_a_file_that_already_existed_deletes_nothing(page: Page, server_url: str) -> None:
    """Discriminates: the document that the reply names deleted, whoever added it and when."""
    deleted: list[str] = []
    page.on("request", lambda request: deleted.append(request.url) if request.method == "DELETE" else None)
    await lists(page, OTHERS)
    await page.add_init_script(SENT_AT_ONCE)
    await replying(page, "POST", UPLOADS, (200, {**ACCEPTED, "job_id": None, "existing": True}))
    held = await hold(page, r"/documents$", method="POST", reaches=False)
    await open_panel(page, server_url)
    await choose(page, a_file(NAME, "x"))
    await held.started.acquire()
    await page.click(f"{upload_row(NAME)}[data-state=checking] [data-action=cancel]")
    held.release.set()
    await page.wait_for_selector(f"{upload_row(NAME)}:not([data-state=cancelling])")
    assert await page.get_attribute(upload_row(NAME), "data-state") == "same"
    assert deleted == []


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_upload_that_needs_a_key_asks_for_it_and_continues(page: Page, server_url: str) -> None:
    """Discriminates: an upload without the key; an error instead of the question."""
    keys: list[str | None] = []
    page.on("request", lambda request: keys.append(key_of(request)) if request.method == "POST" else None)
    refusal = {"error": {"code": "unauthorized", "message": "API key missing.", "retryable": False}}
    await lists(page, OTHERS)
    await replying(page, "POST", UPLOADS, (401, refusal), (201, ACCEPTED))
    await streaming(page, job("verifying"))
    await open_panel(page, server_url)
    await choose(page, a_file(NAME, "x"))
    await page.fill("input[type=password]", "k-1")
    async with page.expect_request(
        lambda request: key_of(request) == "Bearer k-1" and request.method == "POST"
    ):
        await page.keyboard.press("Enter")
    await page.wait_for_selector(f"{upload_row(NAME)}[data-stage=verifying]")
    assert keys == [None, "Bearer k-1"]


def key_of(request: Request) -> str | None:
    return request.headers.get("authorization")


async def test_jobs_of_the_sample_are_named_by_their_path(page: Page, server_url: str) -> None:
    """Discriminates: two rows of the same name, one for each language of the guide."""
    await lists(page, OTHERS)
    where = {"file_name": "page.md", "sample": True, "source": ""}
    pages = [
        job("waiting", job_id=str(uuid.uuid4()), document_id=name, external_id=f"{name}/page.md", **where)
        for name in ("zh", "en")
    ]
    await answer(page, "**/jobs", {"jobs": pages})
    await open_panel(page, server_url)
    await expect(page.locator(".upload .document-name")).to_have_text(["en/page.md", "zh/page.md"])


async def test_files_of_this_page_are_listed_before_jobs_of_others(page: Page, server_url: str) -> None:
    """Discriminates: a person's first file below the sample's, which are still being read."""
    await lists(page, OTHERS)
    await answer(page, "**/jobs", {"jobs": [job("waiting", file_name="别的.md")]})
    await open_panel(page, server_url)
    await page.wait_for_selector(upload_row("别的.md"))
    await choose(page, a_file("a.exe", "x"), a_file("b.exe", "x"))
    await expect(page.locator(".upload .document-name")).to_have_text(["a.exe", "b.exe", "别的.md"])


async def test_a_file_sent_again_while_it_is_read_has_one_row(page: Page, server_url: str) -> None:
    """Discriminates: the job shown since the page was loaded, which would stay in progress for ever."""
    await lists(page, OTHERS)
    await replying(page, "POST", UPLOADS, (200, {**ACCEPTED, "existing": True}))
    await answer(page, "**/jobs", {"jobs": [job("parsing")]})
    await open_panel(page, server_url)
    await page.wait_for_selector(upload_row(NAME))
    await choose(page, a_file(NAME, "x"))
    await page.wait_for_selector(f"{upload_row(NAME)} .upload-actions [data-action=remove]")
    await expect(page.locator(".upload[data-state=uploading], .upload[data-state=queued]")).to_have_count(0)
    await expect(page.locator(".upload")).to_have_count(1)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_three_files_are_sent_at_a_time_and_thirty_stay_usable(page: Page, server_url: str) -> None:
    """Discriminates: all at once; a broken connection that occupies a slot forever."""
    held: list[Route] = []

    async def hold(route: Route) -> None:
        if route.request.method == "POST":
            held.append(route)
        else:
            await route.fallback()

    await lists(page, OTHERS)
    await page.route(UPLOADS, hold)
    await open_panel(page, server_url)
    await choose(page, *(a_file(f"{n}.md", f"{n}") for n in range(30)))
    await page.wait_for_selector(".upload >> nth=29")
    assert len(held) <= 3
    assert await page.inner_text(".open-documents .document-jobs") == "30"
    await page.click(f"{upload_row('29.md')} [data-action=cancel]")
    for _ in range(29):
        while not held:
            await page.wait_for_timeout(20)  # between two polls
        assert len(held) <= 3
        await held.pop(0).abort()
    await page.wait_for_selector("text=29 份未能读入")
    assert "连不上服务器" in await words(page, f"{upload_row('0.md')} .document-state")
    assert await page.locator(".upload[data-state=failed] [data-action=retry]").count() == 29


async def test_files_dragged_out_of_the_window_leave_the_panel_as_it_was(page: Page, server_url: str) -> None:
    """Discriminates: a panel that stays open without a file; one closed that the reader had opened; one that
    flaps in WebKit, where a drag from one element to the next looks like leaving."""
    await lists(page, OTHERS)
    await page.goto(server_url)
    panel = page.locator("#documents")
    await page.wait_for_selector("#documents input[accept]", state="attached")
    assert await page.evaluate(f"({DRAG_OUT})() ?? document.querySelector('#documents').open") is True
    await expect(panel).to_be_hidden()
    await page.click(".open-documents")
    await page.evaluate(DRAG_OUT)
    await expect(page.locator("#documents.dropping")).to_have_count(0)
    await expect(panel).to_be_visible()
