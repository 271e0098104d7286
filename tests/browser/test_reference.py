"""The API's reference at /docs, in the reader's browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.async_api import Page, expect


async def test_every_route_is_shown_and_every_request_stays_on_the_origin(page: Page, bare_url: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(f"{bare_url}/docs#search")
    spec = await (await page.request.get(f"{bare_url}/openapi.json")).json()
    count = sum(len(methods) for methods in spec["paths"].values())
    await expect(page.locator("#operations details")).to_have_count(count)
    await expect(page.locator("#schemas details")).to_have_count(len(spec["components"]["schemas"]))
    await expect(page.locator("#search[open] summary")).to_have_text("POST /search")
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(bare_url).netloc}
    await page.locator("#search").get_by_role("link", name="SearchBody").click()
    await expect(page.locator("#SearchBody[open]")).to_contain_text("previous_questions")
