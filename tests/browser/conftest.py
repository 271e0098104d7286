"""A real Chromium on the page of the real server; every test here is skipped if Chromium is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, CDPSession, Page, async_playwright, expect

from tests.browser.branches.branching import Stubbed, stubbed_server
from tests.browser.composer.composing import Served, served
from tests.browser.support.canary import Canary, listening
from tests.browser.support.live import Live, live_server
from tests.browser.support.profiles import LONGEST_WAIT_MS, leave, profile
from tests.support.models.stub_llm import StubLLM, running_stub

pytest.register_assert_rewrite("tests.browser.support.watching")

Visitor = tuple[BrowserContext, CDPSession]
# The shell has the same engine without the window frame: a test takes a quarter less CPU time.
_SHELL, _WHOLE = Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium")
CHROMIUM = _SHELL if _SHELL.exists() else _WHOLE
# The list below the address bar is two pages, each in a process of its own for every window. The others are
# Playwright's own list, which this option replaces.
_OFF = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding",
    "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints",
    "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
)  # fmt: skip
FLAGS = [
    f"--disable-features={','.join(_OFF)}",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FOLDER = Path(__file__).parent
expect.set_options(timeout=LONGEST_WAIT_MS)


# One event loop for all tests here, so that one browser can serve them.
ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason=f"{CHROMIUM} is not here")
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.slow("a real browser"))
        if item.get_closest_marker("asyncio"):
            item.add_marker(ONE_LOOP, append=False)
        if not CHROMIUM.exists():
            item.add_marker(missing)


@pytest.fixture(scope="session")
def canary() -> Iterator[Canary]:
    with listening() as started:
        yield started


@pytest.fixture(scope="session")
def stub_model() -> Iterator[StubLLM]:
    """For servers that a test starts itself."""
    with running_stub(StubLLM()) as stub:
        yield stub


@pytest.fixture(scope="session")
def stub_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stubbed]:
    """A server with a hashing embedding and no document."""
    with stubbed_server(tmp_path_factory.mktemp("branching")) as started:
        yield started


@pytest.fixture
def stubbed(stub_server: Stubbed) -> Iterator[Stubbed]:
    """A test sets the words of its model."""
    yield stub_server
    stub_server.stub.words = StubLLM().words


@pytest.fixture(scope="session")
def bare_url(stub_server: Stubbed) -> str:
    """For tests that bring their own texts."""
    return stub_server.url


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server whose model's output a test controls, with one document; silent streams ping every second."""
    with live_server(tmp_path_factory.mktemp("live"), PING_INTERVAL_S="1") as started:
        yield started


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without documents, whose model records what it received."""
    with served(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(canary: Canary) -> AsyncIterator[Browser]:
    """One for each worker, since starting it takes longer than most tests. Foreign host names lead to the
    canary."""
    flags = [*FLAGS, f"--host-resolver-rules={canary.resolver_rules}"]
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def visitor(browser: Browser) -> AsyncIterator[Visitor]:
    """A Chinese reader, with a first window that stays empty."""
    context = await profile(browser, locale="zh-CN", viewport={"width": 1240, "height": 860})
    storage = await context.new_cdp_session(await context.new_page())
    yield context, storage
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(visitor: Visitor) -> AsyncIterator[Page]:
    """The page of a first-time visitor. The test fails on an error that a script did not catch."""
    errors: list[str] = []
    context, storage = visitor
    opened = await context.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    await leave(context, storage)
    assert errors == []
