"""The tree of a page without what its reader does not see: scripts, menus, hidden parts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from selectolax.lexbor import LexborHTMLParser, LexborNode

from services.adapters.readers.web.styles import hide_by_sheets, hides

TEXT = "-text"
_UNREAD = frozenset(
    ("script", "style", "nav", "noscript", "template", "head", "title", "svg", "iframe", "object")
)
_ALWAYS_SHOWN = ("html", "body")  # many pages hide themselves until their script has run

Steps = Iterator[tuple["Step", LexborNode]]


class Step(Enum):
    ENTER = 1
    LEAVE = 2
    TEXT = 3


def parse_html(text: str) -> LexborHTMLParser:
    """As a browser reads it: there is no page that it refuses."""
    page = LexborHTMLParser(text, scripting=True)
    hide_by_sheets(page)
    return page


def visible(root: LexborNode) -> Steps:
    """The seen nodes below `root` in the order of the page, without a stack: depth costs nothing."""
    node, depth = root.first_child, 0
    while node is not None:
        following: LexborNode | None = None
        if node.tag == TEXT:
            yield Step.TEXT, node
        elif node.is_element_node and not is_unseen(node):
            yield Step.ENTER, node
            following = node.first_child
            if following is None:
                yield Step.LEAVE, node
        if following is not None:
            node, depth = following, depth + 1
            continue
        while node is not None and (following := node.next) is None and depth:
            node, depth = node.parent, depth - 1
            if node is not None:
                yield Step.LEAVE, node
        node = following


def is_unseen(node: LexborNode) -> bool:
    """What no reader sees says nothing to a person, but may be an instruction to a machine."""
    tag = node.tag
    if tag in _UNREAD:
        return True
    attributes = node.attributes
    if not attributes or tag in _ALWAYS_SHOWN:
        return False
    hidden = "hidden" in attributes and attributes["hidden"] != "until-found"
    if hidden or (attributes.get("aria-hidden") or "").strip().lower() == "true":
        return True
    return hides(attributes.get("style") or "")


def rest_of(node: LexborNode, steps: Steps) -> Steps:
    """What is below the node that was just entered, taken from the walk itself: nothing is walked twice."""
    this = node.mem_id
    for step, below in steps:
        if step is Step.LEAVE and below.mem_id == this:
            return
        yield step, below


def text_of(steps: Steps) -> str:
    return "".join(node.text_content or "" for step, node in steps if step is Step.TEXT)
