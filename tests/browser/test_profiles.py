"""The window that each test here gets: all tests of a worker share one browser profile."""

from __future__ import annotations

from tests.browser.conftest import Visitor
from tests.browser.support.live import Live
from tests.browser.support.profiles import leave

KEEP = """async () => {
  localStorage.kept = sessionStorage.kept = 1;
  document.cookie = "kept=1";
  await new Promise((done) => (indexedDB.open("kept").onsuccess = done));
}"""
KEPT = """async () => [
  localStorage.kept, sessionStorage.kept, document.cookie, (await indexedDB.databases()).length,
  Notification.permission,
]"""


async def test_no_state_of_a_test_leaks_into_the_next(visitor: Visitor, bare_url: str, live: Live) -> None:
    """Discriminates: one server's storage left in place; a permission that stays."""
    context, storage = visitor
    states = []
    for url in (bare_url, live.url, bare_url, live.url):
        page = await context.new_page()
        await page.goto(url)
        states.append(await page.evaluate(KEPT))
        await page.evaluate(KEEP)
        await context.grant_permissions(["notifications"])
        await leave(context, storage)
    assert states[2:] == states[:2]
    assert states[0][:4] == [None, None, "", 0]
