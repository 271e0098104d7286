"""Documents on the page, with the real server: added by chooser and by drop, ingested, cited, changed,
erased."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.documents.panel import (
    INPUT,
    LISTEN,
    a_file,
    choose,
    drop,
    open_panel,
    read_in,
    row,
    upload_row,
    words,
)
from tests.browser.support.driving import answered, ask
from tests.support.servers.server import running_server

READY = f"{INPUT}[accept*='.docx']"  # the server has sent the formats it reads
TRAVEL = "# 出差\n出差每天补助 120 元。"
LEAVE = (
    "# 年假\n员工每年有 17 天带薪年假，须提前两周向主管申请。\n\n# 病假\n病假凭医院证明，每年不超过 30 天。\n"
)
# Records each state and stage of a row, and the texts beside the closed panel meanwhile.
WATCH = """() => {
  const [seen, said] = [new Set(), new Set()];
  const find = (selector) => [...document.querySelectorAll(selector)];
  const note = () => {
    for (const { dataset: { state, stage } } of find(".upload")) seen.add(stage || state);
    const places = find("#documents[open]").length ? [] : find(".document-jobs, #sample-progress");
    for (const { textContent } of places) said.add(textContent);
    Object.assign(document.body.dataset, { seen: [...seen].join(" "), said: [...said].join("|") });
  };
  new MutationObserver(note)
    .observe(document.body, { subtree: true, childList: true, attributeFilter: ["data-stage"] });
}"""


@pytest.fixture(scope="module")
def server_of_documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A separate server without the sample: only the documents of this file are counted."""
    with running_server(tmp_path_factory.mktemp("documents"), LOAD_SAMPLE="false") as server:
        yield server.url


@pytest.fixture
def url(server_of_documents: str) -> str:
    """The server without a document: each test brings its own."""
    for document in httpx.get(f"{server_of_documents}/documents").json()["documents"]:
        httpx.delete(f"{server_of_documents}/documents/{document['document_id']}").raise_for_status()
    return server_of_documents


def add_document(url: str, name: str, text: str) -> None:
    """Add the document; returns when a question finds it."""
    added = httpx.post(f"{url}/documents", files={"file": (name, text.encode())}, timeout=60).json()
    httpx.get(f"{url}/jobs/{added['job_id']}/stream", timeout=60).raise_for_status()


async def test_an_empty_panel_says_what_can_be_read(page: Page, url: str) -> None:
    await open_panel(page, url)
    await page.wait_for_selector(".no-documents:visible")
    await page.wait_for_selector(READY)
    assert "PDF" in await page.inner_text(".no-documents")
    assert await page.locator(".document-filter").is_visible() is False
    await page.click(".no-documents summary")
    assert ".docx" in await page.inner_text(".no-documents details")


async def test_a_chosen_file_is_ingested_and_cited(page: Page, url: str) -> None:
    await open_panel(page, url)
    await choose(page, a_file("年假规定.md", LEAVE))
    await read_in(page, "年假规定.md")
    await expect(page.locator(".upload")).to_have_count(0)  # the list may learn of its end first
    facts = await words(page, f"{row('年假规定.md')} .document-facts")
    assert "MD" in facts
    assert "2 个片段" in facts
    await page.wait_for_selector("text=年假规定.md 已读入，2 个片段", state="attached")
    await page.keyboard.press("Escape")
    assert await page.inner_text(".document-count") == "1"
    await ask(page, "年假有几天\uff1f")
    await answered(page)
    assert await page.locator(".source .file").first.inner_text() == "年假规定.md"


async def test_dropped_files_are_added_and_existing_ones_say_so(page: Page, url: str) -> None:
    """Discriminates: a drop that only the drop zone receives; `existing` taken for a job."""
    add_document(url, "年假规定.md", LEAVE)
    await page.goto(url)
    await drop(page, a_file("出差.md", TRAVEL), a_file("年假规定.md", LEAVE))
    assert await page.evaluate("window.__wasOver") is True
    await read_in(page, "出差.md")
    same = page.locator(f"{upload_row('年假规定.md')}[data-state=same]")
    assert "早已在这里" in (await same.text_content() or "")
    await same.locator("[data-action=dismiss]").click()
    await page.wait_for_selector(".uploads", state="hidden")
    assert await page.locator(row("年假规定.md")).count() == 1


async def test_an_unreadable_file_is_explained_and_not_sent_if_that_is_known_beforehand(
    page: Page, url: str
) -> None:
    """Discriminates: a refusal that is sent anyway; the server's English sentence as the reason."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method) if request.method == "POST" else None)
    await open_panel(page, url)
    await page.wait_for_selector(READY)
    broken = a_file("坏的.pdf", b"%PDF-1.4 and no more")
    await choose(page, a_file("旧合同.doc", "x"), a_file("照片.heic", "x"), a_file("空.md", ""), broken)
    await page.wait_for_selector(f"{upload_row('坏的.pdf')}[data-state=failed]")
    assert len(sent) == 1
    state = {
        name: await words(page, f"{upload_row(name)} .document-state")
        for name in ("旧合同.doc", "照片.heic", "空.md", "坏的.pdf")
    }
    assert "另存为 DOCX" in state["旧合同.doc"]
    assert ".heic 文件读不了" in state["照片.heic"]
    assert "另存为 JPG" in state["照片.heic"]
    assert state["空.md"] == "文件是空的。"
    assert "损坏" in state["坏的.pdf"]
    await page.click(f"{upload_row('坏的.pdf')} summary")
    assert "PDF" in await words(page, f"{upload_row('坏的.pdf')} details p")
    assert await page.inner_text(".upload-summary") == "4 份未能读入"
    await page.click(".upload-head button")
    assert await page.locator(".upload").count() == 0


async def test_the_stages_are_shown_and_the_panel_may_be_closed_meanwhile(page: Page, url: str) -> None:
    """Discriminates: a progress that begins and ends with "reading"; a badge that is not removed."""
    await open_panel(page, url)
    await page.evaluate(WATCH)
    long = "\n\n".join(f"# 第 {n} 条\n第 {n} 条规定了第 {n} 种情形的处理办法。" for n in range(100))
    await choose(page, a_file("规定汇编.md", long))
    await page.keyboard.press("Escape")
    await page.wait_for_selector("body[data-seen~=embedding]")
    await page.wait_for_selector(".document-jobs", state="hidden")
    reply = (await page.get_attribute("body", "data-said") or "").split("|")
    assert "1" in reply
    assert any("正在读入 1 份文档" in text for text in reply)
    observed = (await page.get_attribute("body", "data-seen") or "").split()
    assert {"uploading", "waiting", "embedding"} <= set(observed)
    await page.wait_for_selector("#announcer:has-text('规定汇编.md 已读入')", state="attached")


async def test_a_reload_finds_the_running_job_and_a_cancelled_one_leaves_nothing(
    page: Page, url: str
) -> None:
    """Discriminates: another page's job cancelled without asking, or one that nobody can stop."""
    await open_panel(page, url)
    long = "\n\n".join(f"# 案例 {n}\n案例 {n} 讲的是第 {n} 个客户的故事。" for n in range(2_000))
    await choose(page, a_file("案例.md", long))
    await page.wait_for_selector(f"{upload_row('案例.md')}[data-state=reading]")
    await page.reload()
    await page.click(".open-documents")
    await page.wait_for_selector(f"{upload_row('案例.md')}[data-state=reading]")
    assert await page.locator(f"{upload_row('案例.md')} [data-action=cancel]").count() == 0
    assert await page.locator(row("案例.md")).is_visible() is False
    await choose(page, a_file("案例二.md", f"{long}二"))
    await page.click(f"{upload_row('案例二.md')}[data-state=reading] [data-action=cancel]")
    await page.wait_for_selector(f"{upload_row('案例二.md')}[data-state=cancelled]")
    documents = (await (await page.request.get(f"{url}/documents")).json())["documents"]
    ids = {one["file_name"]: one["document_id"] for one in documents}
    assert "案例二.md" not in ids
    await page.click(f"{upload_row('案例.md')} [data-action=remove]")
    await page.click(".small-dialog .danger")
    await page.wait_for_selector(f"{upload_row('案例.md')}[data-state=cancelled]")


async def test_passages_are_read_and_passed_to_the_question(page: Page, url: str) -> None:
    """Discriminates: publishing before the panel is closed; a passage of another row."""
    add_document(url, "年假规定.md", LEAVE)
    await open_panel(page, url)
    await page.evaluate(LISTEN)
    await page.click(f"{row('年假规定.md')} .document-open")
    await page.wait_for_selector(".chunk >> nth=1")
    assert await words(page, ".chunk >> nth=1 >> .chunk-heading") == "病假"
    text = await words(page, ".chunk >> nth=1 >> .chunk-text")
    await page.click(".chunk >> nth=1 >> [data-action=quote]")
    await page.wait_for_selector("#documents", state="hidden")
    await page.click(".open-documents")  # the place is kept
    await page.click(".document-actions [data-action=ask]")
    (quote, quoted), (asked, limits) = await page.evaluate("window.__published")
    assert (quote, quoted) == ("quote", {"file_name": "年假规定.md", "text": text})
    assert (asked, limits["names"]) == ("filter", ["年假规定.md"])
    await page.click(".open-documents")
    await page.click(".chunk >> nth=0 >> [data-action=persona]")
    name, persona = (await page.evaluate("window.__published"))[2]
    assert (name, persona["document_id"]) == ("persona", limits["document_ids"][0])
    assert set(persona) == {"file_name", "text", "document_id", "chunk_id"}


async def test_tags_and_date_are_edited_and_shown(page: Page, url: str) -> None:
    add_document(url, "年假规定.md", LEAVE)
    add_document(url, "出差.md", TRAVEL)
    await open_panel(page, url)
    await page.click(f"{row('出差.md')} .document-open")
    await page.click("[data-action=edit]")
    await page.fill(".document-form input >> nth=0", "人事\uff0c 差旅、人事")
    await page.fill(".document-form input >> nth=1", "去年")
    await page.keyboard.press("Enter")
    assert "2026-01-31" in await page.inner_text(".form-problem")
    await page.fill(".document-form input >> nth=1", "2026-03")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".document-about .tag >> nth=1")
    assert await page.locator(".document-about .tag").all_inner_texts() == ["人事", "差旅"]
    await page.click("[data-action=edit]")
    await page.keyboard.press("Escape")  # leaves the form, not the panel
    await page.wait_for_selector(".document-actions")
    await page.click(".document-back")
    assert "2026-03" in await words(page, row("出差.md"))
    await page.fill(".document-search", "差旅")
    assert await page.locator(".document:visible .document-name").all_text_contents() == ["出差.md"]


async def test_a_deleted_document_disappears_from_the_list_and_from_old_answers(page: Page, url: str) -> None:
    """Discriminates: no confirmation; the focus lost with the row."""
    add_document(url, "年假规定.md", LEAVE)
    add_document(url, "出差.md", TRAVEL)
    await page.goto(url)
    await ask(page, "年假有几天\uff1f")
    await answered(page)
    await page.click(".open-documents")
    await page.click(f"{row('年假规定.md')} .document-remove")
    assert "2 个片段" in await page.inner_text(".small-dialog p")
    await page.click(".small-dialog button:has-text('取消')")
    await page.click(f"{row('年假规定.md')} .document-remove")
    await page.click(".small-dialog .danger")
    await page.wait_for_selector(".document-notice:visible")
    reply = await page.inner_text(".document-notice p")
    assert "2 个片段已抹去" in reply
    assert "没有残留" in reply
    assert await page.locator(row("年假规定.md")).count() == 0
    assert await page.evaluate("document.activeElement.className") == "document-open"
    await page.reload()
    await answered(page)
    assert "已" in await page.locator(".standing").first.inner_text()


async def test_a_changed_file_offers_to_delete_the_older_one_of_its_name(page: Page, url: str) -> None:
    """Discriminates: two versions side by side without a hint; the new version deleted, or without asking; a
    hint that stays when the older one was deleted in the list."""
    await open_panel(page, url)
    await page.wait_for_selector(READY, state="attached")
    await choose(page, a_file("员工手册.md", LEAVE), a_file("出差.md", TRAVEL))
    await read_in(page, "员工手册.md")
    await read_in(page, "出差.md")
    await expect(page.locator(".upload")).to_have_count(0)
    for place in (f"{upload_row('员工手册.md')} [data-action=replace]", ".document-remove >> nth=1"):
        changed = LEAVE.replace("17", str(len(place)))
        await choose(page, a_file("员工手册.md", changed))
        await expect(page.locator(f"{upload_row('员工手册.md')} .document-state")).to_contain_text(
            "已有同名文档"
        )
        await expect(page.locator(row("员工手册.md"))).to_have_count(2)
        new = await page.get_attribute(f"{row('员工手册.md')} >> nth=0", "data-id")
        await page.click(place)
        await page.click(".small-dialog .danger")
        await expect(page.locator(row("员工手册.md"))).to_have_count(1)
        await expect(page.locator(".upload")).to_have_count(0)
        assert await page.get_attribute(row("员工手册.md"), "data-id") == new
        await expect(page.locator(row("出差.md"))).to_have_count(1)
