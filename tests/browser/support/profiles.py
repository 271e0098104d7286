"""A reader's profile in the browser: windows that share cookies, storage and cached files."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, BrowserContext, CDPSession

LONGEST_WAIT_MS = 30_000  # for what a busy machine shows late
# `part("base/bus.js")` is the page's own instance of the module: its address contains the page's version.
PART = """window.part = (name) =>
  import(new URL(name, document.querySelector("script[type=module]").src).href)"""
STORAGES = "local_storage,indexeddb,cache_storage,service_workers,websql,file_systems"


async def profile(browser: Browser, **options: Any) -> BrowserContext:
    context = await browser.new_context(**options)
    context.set_default_timeout(LONGEST_WAIT_MS)
    await context.add_init_script(PART)
    return context


async def leave(context: BrowserContext, storage: CDPSession) -> None:
    """Close all but the first window, and clear everything that a page can read. Cached files stay: fetching
    and compiling them takes most of a page's time."""
    for page in context.pages[1:]:
        await page.close()
    await context.unroute_all()
    await context.set_offline(False)
    await context.clear_cookies()
    await context.clear_permissions()
    await storage.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": STORAGES})
