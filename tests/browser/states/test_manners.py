"""The frame's behaviour: theme, language, keys, focus, and announcements for a reader who cannot see."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.documents.panel import document, lists
from tests.browser.support.conversations import import_session, open_menu, row
from tests.browser.support.driving import answered, ask

GROUND = "getComputedStyle(document.body).backgroundColor"
COLOURS = "[...document.querySelectorAll('meta[name=theme-color]')].map((meta) => meta.content)"
FOCUSED = "document.activeElement.id"
BUTTON = "document.querySelector('.send').click()"
ENTER = """document.querySelector("#question").dispatchEvent(
  new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }))"""
WATCH_JUMPS = """window.jumps = [];
  const where = ({ node }) => `${node?.nodeName} ${node?.id} ${node?.parentElement?.closest("aside")?.id}`;
  const note = (list) => list.getEntries().forEach((entry) =>
    window.jumps.push([entry.value, entry.sources.map(where)]));
  new PerformanceObserver(note).observe({ type: "layout-shift", buffered: true });"""


async def choose_theme(page: Page, words: str) -> None:
    await page.click("#theme")
    await page.click(f"[role=menuitemradio]:has-text('{words}')")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_theme_follows_the_device_until_the_reader_chooses(page: Page, server_url: str) -> None:
    await page.emulate_media(color_scheme="light")
    await page.goto(server_url)
    light = await page.evaluate(GROUND)
    await page.emulate_media(color_scheme="dark")
    dark = await page.evaluate(GROUND)
    assert light != dark
    await choose_theme(page, "浅色")
    assert await page.evaluate(GROUND) == light
    assert await page.evaluate(COLOURS) == [light, light]
    await page.reload()
    await page.wait_for_selector("#theme .icon")
    assert await page.evaluate(GROUND) == light
    await page.click("#theme")
    assert await page.inner_text("[aria-checked=true]") == "浅色"
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    assert await page.evaluate(GROUND) == dark
    assert await page.evaluate(COLOURS) == ["#f7f8f8", "#14181b"]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_chosen_language_persists_and_its_words_are_the_first_shown(
    page: Page, server_url: str
) -> None:
    """Discriminates: the Chinese words of the page shown until the script has the English ones; a question
    lost that was typed before the script was loaded."""
    await page.goto(server_url)
    await page.click("#language")
    held: list[Route] = []
    await page.route("**/web/*/js/app.js", lambda route: held.append(route))
    async with page.expect_request("**/web/*/js/app.js"):
        await page.reload(wait_until="commit")
    await page.wait_for_selector("html[lang=en]")
    await page.fill("#question", "Typed early")
    await held[0].continue_()
    await expect(page.locator("#sidebar .new-chat")).to_have_text("New conversation")
    assert await page.get_attribute("html", "lang") == "en"
    assert await page.get_attribute("html", "data-words") is None
    await expect(page.locator("#question")).to_have_value("Typed early")


@pytest.mark.parametrize("send", [BUTTON, ENTER])
@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_question_sent_before_the_scripts_have_loaded_is_asked_once_they_have(
    page: Page, server_url: str, send: str
) -> None:
    """Discriminates: a form whose submission, although blocked, ends the loading of the page: nothing on it
    works any more; Enter that only breaks the line."""
    held: list[Route] = []
    await page.route("**/web/*/js/app.js", lambda route: held.append(route))
    async with page.expect_request("**/web/*/js/app.js"):
        await page.goto(server_url, wait_until="commit")
    await page.wait_for_selector("#memories", state="attached")
    await page.fill("#question", "Typed early")
    await page.evaluate(send)
    await held[0].continue_()
    await answered(page)
    assert await page.locator(".asked").all_inner_texts() == ["Typed early"]
    await expect(page.locator("#question")).to_have_value("")
    assert "Typed" not in page.url


@pytest.mark.full("a journey of seconds in a real browser")
async def test_examples_and_times_are_in_the_chosen_language(page: Page, server_url: str) -> None:
    """Discriminates: examples or times that stay unchanged; a label that is cut off."""
    await lists(page, [document(sample=True)])
    await page.goto(server_url)
    examples = page.locator(".example")
    assert all("问脉" in example for example in await examples.all_inner_texts())
    await examples.first.click()
    await answered(page)
    await page.reload()  # a stored turn shows when it was asked
    await answered(page)
    time = page.locator(".progress > time")
    assert "年" in await time.inner_text()
    await page.click("#language")
    assert "20" in await time.inner_text()
    assert "年" not in await time.inner_text()
    label = page.locator(".open-documents [data-i18n]")
    assert await label.inner_text() == "Documents"
    assert await label.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    await page.click("#sidebar .new-chat")
    assert all("Wenmai" in example for example in await examples.all_inner_texts())


@pytest.mark.full("a journey of seconds in a real browser")
async def test_shortcuts_reach_the_question_the_search_a_new_conversation_and_their_list(
    page: Page, server_url: str
) -> None:
    chat = import_session(server_url, "带键盘的")
    await page.goto(f"{server_url}/#/s/{chat}")
    await page.wait_for_selector(".turn")
    await page.keyboard.press("Control+k")
    assert await page.evaluate(FOCUSED) == "session-search"
    await page.focus(f"{row(chat)} .session-link")
    await page.keyboard.press("/")
    assert await page.evaluate(FOCUSED) == "question"
    assert await page.input_value("#question") == ""
    await page.keyboard.type("a/b?")
    assert await page.input_value("#question") == "a/b?"
    await page.keyboard.press("Alt+n")
    await page.wait_for_selector("body.empty")
    await page.focus(f"{row(chat)} .session-link")
    await page.keyboard.press("?")
    await page.wait_for_selector(".keys-dialog")
    await page.keyboard.press("/")
    assert await page.is_visible(".keys-dialog")
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".keys-dialog", state="detached")
    assert await page.evaluate("document.activeElement.className") == "session-link"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_menu_is_operated_by_keys_and_returns_the_focus(page: Page, server_url: str) -> None:
    chat = import_session(server_url, "有菜单的")
    await page.goto(server_url)
    await page.focus(f"{row(chat)} .row-menu")
    await page.keyboard.press("Enter")
    labels = page.locator(".menu [role=menuitem]")
    assert await page.evaluate("document.activeElement.textContent") == await labels.first.inner_text()
    await page.keyboard.press("ArrowUp")
    assert await page.evaluate("document.activeElement.textContent") == await labels.last.inner_text()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Escape")
    assert await page.locator(".menu").count() == 0
    assert "row-menu" in await page.evaluate("document.activeElement.className")
    assert await page.get_attribute(f"{row(chat)} .row-menu", "aria-expanded") == "false"
    await open_menu(page, chat)
    await page.mouse.click(800, 300)
    assert await page.locator(".menu").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_esc_in_a_menu_does_not_stop_the_running_answer(page: Page, server_url: str) -> None:
    """Discriminates: a menu that neither stops the key event nor prevents its default."""
    chat = import_session(server_url, "旁边的")
    stops: list[str] = []
    page.on("request", lambda request: stops.append(request.url) if request.url.endswith("/stop") else None)
    await page.route("**/knowledge_chat_conversation", lambda route: None)  # it never ends
    await page.goto(server_url)
    await ask(page, "慢慢来")
    await page.wait_for_selector("#composer.running")
    await open_menu(page, chat)
    await page.keyboard.press("Escape")
    await page.fill("#session-search", "xyzzy")
    await page.wait_for_selector("#sessions > p")
    await page.press("#session-search", "Escape")
    # A list still to come would take the focus from the title's field.
    await page.wait_for_selector(f"#sessions:not([aria-busy]) {row(chat)}")
    await page.press(f"{row(chat)} .session-link", "F2")
    await page.keyboard.press("Escape")
    assert await page.is_visible("#composer.running")
    assert stops == []


async def test_the_page_has_one_top_heading_and_named_landmarks(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    assert await page.locator("h1:visible").all_inner_texts() == ["问脉"]
    await ask(page, "父子链是什么\uff1f")
    await answered(page)
    await page.wait_for_selector("h1:has-text('父子链是什么')")
    assert await page.locator("h1:visible").count() == 1
    names = await page.evaluate(
        "[...document.querySelectorAll('aside, nav, main section')].filter((node) => node.checkVisibility())"
        ".map((node) => node.ariaLabel)"
    )
    assert all(names)
    assert len(set(names)) == len(names)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_opening_a_conversation_is_announced(page: Page, server_url: str) -> None:
    chat = import_session(server_url, "听得见的")
    await page.goto(server_url)
    await page.click(f"{row(chat)} .session-link")
    await page.wait_for_selector("#announcer:has-text('已打开对话：听得见的')", state="attached")
    assert await page.evaluate(FOCUSED) == "question"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_nothing_shifts_while_the_page_loads(page: Page, server_url: str) -> None:
    """Discriminates: icons that push their words aside when the script inserts them."""
    await page.add_init_script(WATCH_JUMPS)
    import_session(server_url, "已有的")
    await page.goto(server_url)
    await page.wait_for_selector(".session")
    await page.wait_for_timeout(300)  # time for something to shift
    jumps = await page.evaluate("window.jumps")
    assert [jump for jump in jumps if "sidebar" in str(jump)] == []
    assert sum(jump[0] for jump in jumps) < 0.02, jumps
    logo = page.locator(".brand img")
    place = await logo.bounding_box()
    await page.evaluate("document.querySelectorAll('.brand > :not(img)').forEach((each) => each.remove())")
    assert await logo.bounding_box() == place  # drawn before the rest of its row has loaded


@pytest.mark.full("a journey of seconds in a real browser")
async def test_more_contrast_and_forced_colours_leave_every_control_visible(
    page: Page, server_url: str
) -> None:
    await page.emulate_media(contrast="more")
    await page.goto(server_url)
    assert await page.evaluate("getComputedStyle(document.querySelector('.hint')).color") == "rgb(58, 69, 76)"
    await page.emulate_media(forced_colors="active")
    chat = import_session(server_url, "系统颜色")
    await page.goto(f"{server_url}/#/s/{chat}")
    await page.wait_for_selector(".session.current")
    outline = "getComputedStyle(document.querySelector('.session.current')).outlineStyle"
    assert await page.evaluate(outline) == "solid"
