"""Looks for what hostile text may leave behind: a script that ran, a request, injected markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import Dialog, Frame, Page, Request

from tests.browser.support.canary import Canary

WATCH_POLICY = """
window.__violations = [];
addEventListener("securitypolicyviolation",
  ({ violatedDirective, blockedURI }) => window.__violations.push(`${violatedDirective} ${blockedURI}`));
"""
ODD_MARKUP = (Path(__file__).parent / "odd_markup.js").read_text("utf-8")


@dataclass
class Watch:
    page: Page
    canary: Canary
    strays: list[str] = field(default_factory=list)
    requests_before: int = 0

    async def assert_nothing_happened(self) -> None:
        """Fail when anything ran, left the origin, was blocked by the policy, or is injected markup."""
        await self.page.wait_for_timeout(150)  # time for it to happen
        assert await self.page.evaluate("typeof window.__ran") == "undefined"
        assert await self.page.evaluate("window.__violations") == []
        assert self.strays == []
        assert self.canary.requests[self.requests_before :] == []
        assert await self.odd_markup("html") == []
        assert await self.odd_markup(".prose > *", strict=True) == []

    async def odd_markup(self, selector: str, strict: bool = False) -> list[str]:
        look = f"([where, strict]) => ({ODD_MARKUP})(where, strict)"
        results: list[str] = await self.page.evaluate(look, [selector, strict])
        return results


async def watch(page: Page, server_url: str, canary: Canary) -> Watch:
    """Call before the page is opened."""
    watched = Watch(page, canary, requests_before=len(canary.requests))

    def note_request(request: Request) -> None:
        if not request.url.startswith((server_url, "data:", "blob:")):
            watched.strays.append(request.url)

    def note_dialog(dialog: Dialog) -> None:
        watched.strays.append(f"dialog {dialog.message}")

    def note_frame(frame: Frame) -> None:
        if not frame.url.startswith(server_url):
            watched.strays.append(f"frame {frame.url}")

    def note_window(opened: Page) -> None:
        watched.strays.append(f"window {opened.url}")

    def forget(_: Page) -> None:
        page.context.remove_listener("request", note_request)
        page.context.remove_listener("page", note_window)

    page.context.on("request", note_request)
    page.on("dialog", note_dialog)
    page.on("framenavigated", note_frame)
    page.context.on("page", note_window)
    page.on("close", forget)
    await page.add_init_script(WATCH_POLICY)
    return watched
