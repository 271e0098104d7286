"""What Firefox 115 and Safari 16.4 lack stands nowhere on the page without something in its place."""

from __future__ import annotations

import re

import pytest

from routes.web.page import WEB

OWN = [*(WEB / "js").rglob("*.js"), *(WEB / "css").rglob("*.css"), WEB / "widget.js"]
LATER = (
    "AbortSignal.any(", "Promise.withResolvers(", "Promise.try(", "Object.groupBy(", "URL.canParse(",
    "URL.parse(", ".checkVisibility(", ".showPopover(", "requestIdleCallback(", "light-dark(",
)  # fmt: skip
RULE = re.compile(r"([^{}]+)\{")
IN_BRACKETS = re.compile(r"\([^()]*\)")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@pytest.mark.parametrize("name", LATER)
def test_no_file_calls_what_a_supported_browser_lacks(name: str) -> None:
    users = [file.name for file in OWN if name in COMMENT.sub("", file.read_text())]
    assert users == [], f"{users} use {name}"


def test_has_stands_alone_in_its_rule() -> None:
    """Firefox has `:has()` since 121; one unknown selector costs the whole rule, except within `:is()`."""
    shared = []
    for file in (WEB / "css").glob("*.css"):
        for rule in RULE.findall(COMMENT.sub("", file.read_text())):
            selectors = rule
            while selectors != (selectors := IN_BRACKETS.sub("", selectors)):
                pass
            if ":has(" in rule and "," in selectors:
                shared.append(f"{file.name}: {rule.strip()}")
    assert shared == []


def test_spaces_between_scripts_are_left_to_browsers_that_do_not_overlap_the_letters() -> None:
    """WebKitGTK 2.50 with `text-autospace` paints digits beside Chinese characters over each other. Only
    WebKit has `hanging-punctuation`."""
    css = "".join(file.read_text() for file in (WEB / "css").glob("*.css"))
    guarded = "@supports not (hanging-punctuation: first) { body { text-autospace: normal; } }"
    assert css.count("text-autospace:") == css.count(guarded) == 1
