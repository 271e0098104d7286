"""The page below a reverse proxy's prefix."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.support.driving import ask
from tests.support.models.stub_llm import StubLLM
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

LEAVE = "# Annual leave\n\nEvery employee has fifteen days of annual leave.\n"


async def test_everything_that_the_page_requests_is_below_the_prefix(
    page: Page, stub_model: StubLLM, tmp_path: Path
) -> None:
    """Discriminates: one address with a leading slash: of a file, a question, an upload, the reference."""
    model = {"OPENAI_BASE_URL": stub_model.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "stub"}
    with running_server(
        tmp_path, LOAD_SAMPLE="false", EMBEDDING=HASHING, ROOT_PATH="/wenmai", **model
    ) as server:
        paths: list[str] = []
        page.on("request", lambda request: paths.append(request.url.removeprefix(server.url)))
        await page.goto(f"{server.url}/wenmai")
        await ask(page, "你好？")
        await expect(page.locator(".turn[data-status=completed]")).to_be_visible()
        await page.click(".open-documents")
        leave = tmp_path / "leave.md"
        leave.write_text(LEAVE)
        async with page.expect_response("**/documents") as uploaded:
            await page.set_input_files("#documents input[type=file]", [leave])
        assert (await uploaded.value).ok
        await page.goto(f"{server.url}/wenmai/docs")
        await expect(page.get_by_text("knowledge_chat_conversation").first).to_be_visible()
        assert any(path.endswith("/vendor/marked.esm.js") for path in paths)
        assert [path for path in paths if path != "/wenmai" and not path.startswith("/wenmai/")] == []
