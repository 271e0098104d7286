"""An export of another product, or of our own: first its plan, and only then its conversations."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from playwright.async_api import Page, Route, expect

from tests.browser.branches.branching import Stubbed
from tests.support.wire.exports import chatgpt

NOTICE = "dialog.small-dialog p[role=status]"
CHOOSER = "dialog.small-dialog input[type=file]"


async def test_the_plan_is_shown_before_anything_is_imported(
    page: Page, stubbed: Stubbed, tmp_path: Path
) -> None:
    """Discriminates: a file that is imported as soon as it is chosen; a refused one that hides the plan of
    the next, or that only the server's English explains."""
    export, broken = tmp_path / "conversations.json", tmp_path / "broken.json"
    grown = chatgpt()
    grown[0]["title"] = "血脉 <b>"
    export.write_text(json.dumps(grown))
    broken.write_text("[{")
    await page.goto(stubbed.url)
    await page.click("#open-import")
    await page.set_input_files(CHOOSER, broken)
    await expect(page.locator(NOTICE)).to_contain_text("读不出对话")
    await expect(page.locator(NOTICE)).to_contain_text("服务器的原话：file:")
    await page.set_input_files(CHOOSER, export)
    await expect(page.locator(NOTICE)).to_have_text("ChatGPT：会导入 3 轮问答。")
    await expect(page.locator(".import-plan")).to_contain_text("2 个分支。")
    await expect(page.locator(".import-list li")).to_have_text(["血脉 <b>3 / 3"])
    async with httpx.AsyncClient(base_url=stubbed.url, timeout=60) as client:
        titles = [each["title"] for each in (await client.get("/sessions")).json()["sessions"]]
        assert "血脉 <b>" not in titles
    await page.click("dialog.small-dialog .button.primary")
    await expect(page.locator(NOTICE)).to_have_text("已导入 3 轮问答。")
    await page.click("dialog.small-dialog .dialog-actions .button >> nth=0")
    await page.click(".session-title >> text=血脉 <b>")
    await expect(page.locator("#branches")).to_be_visible()
    await page.click("#open-import")
    await page.set_input_files(CHOOSER, export)
    await expect(page.locator(NOTICE)).to_have_text("ChatGPT：里面的问答都已经有了。")
    await expect(page.locator("dialog.small-dialog .button.primary")).to_be_hidden()


async def test_an_export_of_our_own_can_be_imported(page: Page, stubbed: Stubbed, tmp_path: Path) -> None:
    """Discriminates: a page that refuses the file which it created itself, perhaps by its name; a plan to
    import what already exists."""
    path = tmp_path / "导出.JSON"
    async with httpx.AsyncClient(base_url=stubbed.url, timeout=60) as client:
        turns = [
            {"question": "咖啡机在哪里？", "answer": "在三楼。"},
            {"question": "谁管？", "answer": "行政。"},
        ]
        made = await client.post("/sessions/import", json={"title": "咖啡机", "turns": turns})
        session = f"/sessions/{made.json()['session_id']}"
        path.write_bytes((await client.get(f"{session}/export?format=json")).content)
        await client.delete(session)
    await page.goto(stubbed.url)
    await page.click("#open-import")
    warning = page.locator(".import-expiring")
    old = json.loads(path.read_bytes())
    old["turns"][0]["timestamp"] = "2020-01-01T00:00:00Z"
    for held, count in ((True, 0), (False, 1)):
        aged = tmp_path / f"{held}.json"
        aged.write_text(json.dumps(old | {"hold": held}))
        await page.set_input_files(CHOOSER, aged)
        await expect(page.locator(NOTICE)).to_have_text("Wenmai：会导入 2 轮问答。")
        await expect(warning).to_have_count(count)
    await expect(warning).to_contain_text("其中 1 轮早于 30 天的期限")
    path = path.rename(tmp_path / "咖啡机")  # the content decides, not the name
    await page.set_input_files(CHOOSER, path)
    await expect(page.locator(NOTICE)).to_have_text("Wenmai：会导入 2 轮问答。")
    await expect(warning).to_have_count(0)
    await page.click("dialog.small-dialog .button.primary")
    await expect(page.locator(NOTICE)).to_have_text("已导入 2 轮问答。")
    await page.click("dialog.small-dialog .dialog-actions .button >> nth=0")
    await page.click(".session-title >> text=咖啡机")
    await expect(page.locator(".turn")).to_have_count(2)
    await page.click("#open-import")
    await page.set_input_files(CHOOSER, path)
    await expect(page.locator(NOTICE)).to_have_text("Wenmai：里面的问答都已经有了。")
    await expect(page.locator("dialog.small-dialog .button.primary")).to_be_hidden()


async def test_a_file_larger_than_an_upload_names_the_setting(
    page: Page, stubbed: Stubbed, tmp_path: Path
) -> None:
    """Discriminates: sending it, which fails as if the server could not be reached."""
    export = tmp_path / "session.json"
    export.write_text(json.dumps({"turns": [{"question": "咖啡机在哪里？", "answer": "三楼" * 500_000}]}))

    async def limited(route: Route) -> None:
        settings = await (await route.fetch()).json()
        await route.fulfill(json=settings | {"max_upload_bytes": 2_000_000})

    await page.route("**/settings/public", limited)
    await page.goto(stubbed.url)
    await page.click("#open-import")
    await page.set_input_files(CHOOSER, export)
    await expect(page.locator(NOTICE)).to_contain_text("服务器只收 2.0 MB 以内的")
    await expect(page.locator(NOTICE)).to_contain_text("MAX_UPLOAD_BYTES")
    await expect(page.locator("dialog.small-dialog .button.primary")).to_be_hidden()
