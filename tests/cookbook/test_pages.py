"""The pages of docs/cookbook say the same in both languages, and show the files beside them verbatim."""

from __future__ import annotations

import pytest

from tests.cookbook.pages import COOKBOOK, LANGUAGES, blocks, page, rows

FILES = {
    "python": ["read_stream.py"],
    "js": ["read_stream.mjs"],
    "nginx": ["nginx.conf"],
    "caddy": ["Caddyfile"],
    "ini": ["wenmai.service", "wenmai-backup.service", "wenmai-backup.timer"],
}
NAMES = sorted(each.stem for each in (COOKBOOK / "en").glob("*.md"))


def test_every_page_has_both_languages() -> None:
    assert sorted(each.stem for each in (COOKBOOK / "zh").glob("*.md")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_typed_text_is_the_same_in_both_languages(name: str) -> None:
    """Headings, code and program output; only prose differs."""
    english, chinese = (page(language, name) for language in LANGUAGES)
    assert blocks(english) == blocks(chinese)
    assert len(rows(english)) == len(rows(chinese))
    outlines = [
        [line.split()[0] for line in text.splitlines() if line.startswith("#")] for text in (english, chinese)
    ]
    assert outlines[0] == outlines[1]


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_shown_verbatim(kind: str) -> None:
    """Discriminates: a reader or a configuration that is fixed beside the page, or in it, but not in both."""
    shown = [text for name in NAMES for language, text in blocks(page("en", name)) if language == kind]
    assert shown == [(COOKBOOK / file).read_text(encoding="utf-8") for file in FILES[kind]]
