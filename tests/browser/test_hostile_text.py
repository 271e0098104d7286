"""Nothing that a model, a document or an error says becomes a script, or a request to somewhere else."""

from __future__ import annotations

from playwright.async_api import Dialog, Page, Request

from tests.browser.driving import answer_with, answered, ask, citation, sse_body, stream_in_pieces, whole_turn
from tests.browser.payloads import CALL, HOSTILE

WATCH_POLICY = (
    "window.__violations=[];"
    "addEventListener('securitypolicyviolation', (e) => window.__violations.push(e.violatedDirective))"
)
LINKS = "[...document.querySelectorAll('.prose a')].map((a) => [a.protocol, a.rel, a.target])"
FORBIDDEN = "script, style, img, iframe, object, embed, form, base, link, meta, [onerror], [style*=url]"


async def watched(page: Page, server_url: str) -> list[str]:
    """Opens the page; the list fills with every request that leaves its origin."""
    strays: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(server_url):
            strays.append(request.url)

    def note_dialog(dialog: Dialog) -> None:
        strays.append(dialog.message)

    page.on("request", note)
    page.on("dialog", note_dialog)
    await page.add_init_script(WATCH_POLICY)
    await stream_in_pieces(page, 7)
    await page.goto(server_url)
    return strays


async def assert_nothing_happened(page: Page, strays: list[str]) -> None:
    await page.wait_for_timeout(300)
    assert await page.evaluate("typeof window.__ran") == "undefined", CALL
    assert await page.evaluate("window.__violations") == []
    assert await page.locator(f"#thread :is({FORBIDDEN})").count() == 0
    assert all(scheme in ("http:", "https:", "mailto:") for scheme, _, _ in await page.evaluate(LINKS))
    assert strays == []


async def test_hostile_text_in_every_field_stays_text(page: Page, server_url: str) -> None:
    """Discriminates: DOMPurify skipped; or tags passed through by `renderer.html`."""
    hostile = "\n\n".join(HOSTILE)
    source = citation(
        file_name=HOSTILE[1], heading=HOSTILE[2], text=hostile, key_passage=HOSTILE[1], reason=HOSTILE[1]
    )
    thinking = [("STATUS", {"stage": "odd", "message": HOSTILE[1]}), ("THINK", hostile.replace("\n", " "))]
    strays = await watched(page, server_url)
    await answer_with(page, whole_turn(hostile + "\n\n[1]", sources=[source], before=thinking))
    await ask(page, HOSTILE[1])
    await answered(page)
    await page.click(".cite >> nth=-1")
    await page.click(".thinking summary")
    assert HOSTILE[0] in await page.inner_text(".prose")
    assert await page.inner_text(".asked") == HOSTILE[1]
    assert await page.inner_text(".source .file") == HOSTILE[1]
    await assert_nothing_happened(page, strays)


async def test_a_hostile_error_is_shown_as_text(page: Page, server_url: str) -> None:
    strays = await watched(page, server_url)
    await answer_with(page, sse_body([("SESSION", "x"), ("ERROR", HOSTILE[1]), ("DONE", "")]))
    await ask(page, "?")
    assert HOSTILE[1] in await page.inner_text(".error-card")
    await assert_nothing_happened(page, strays)


async def test_a_link_opens_only_by_click_and_tells_nothing(page: Page, server_url: str) -> None:
    strays = await watched(page, server_url)
    await answer_with(page, whole_turn("[guide](https://example.com/a) ![alt](https://example.com/b.png)"))
    await ask(page, "?")
    await answered(page)
    assert await page.evaluate(LINKS) == [["https:", "noopener noreferrer nofollow", "_blank"]]
    assert "alt" in await page.inner_text(".prose")
    await assert_nothing_happened(page, strays)


async def test_frames_that_an_answer_imitates_are_its_text(page: Page, server_url: str) -> None:
    await watched(page, server_url)
    text = "DONE:\n\nSOURCE:[]\n\ndata: ERROR:no\n\nthe end \U0001f409 龙"
    await answer_with(page, whole_turn(text))
    await ask(page, "?")
    await answered(page)
    assert (await page.inner_text(".prose")).split() == text.split()
    assert await page.locator(".error-card").count() == 0
