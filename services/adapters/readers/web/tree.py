"""The tree of a page without what a visitor does not see: scripts, menus, hidden parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from selectolax.lexbor import LexborHTMLParser, LexborNode

TEXT = "-text"
_SKIPPED = frozenset(
    ("script", "style", "nav", "noscript", "template", "head", "title", "svg", "iframe", "object", "select",
     "datalist")
)  # fmt: skip
_ALWAYS_SHOWN = ("html", "body")  # many pages hide themselves until their script has run

Steps = Iterator[tuple["Step", LexborNode]]


class Step(Enum):
    ENTER = 1
    LEAVE = 2
    TEXT = 3


def parse_html(text: str) -> LexborHTMLParser:
    """Parse as a browser does, which accepts any page."""
    page = LexborHTMLParser(text, scripting=True)
    hide_by_sheets(page)
    return page


def visible(root: LexborNode) -> Steps:
    """The visible nodes below `root`, in page order; iterative, so that deep nesting costs no stack."""
    node, depth = root.first_child, 0
    while node is not None:
        following: LexborNode | None = None
        if node.tag == TEXT:
            yield Step.TEXT, node
        elif node.is_element_node and not is_hidden(node):
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


def is_hidden(node: LexborNode) -> bool:
    """Whether visitors do not see the node: its text says nothing to people, but may instruct a machine."""
    tag = node.tag
    if tag in _SKIPPED:
        return True
    attributes = node.attributes
    if not attributes or tag in _ALWAYS_SHOWN:
        return False
    hidden = "hidden" in attributes and attributes["hidden"] != "until-found"
    if hidden or (attributes.get("aria-hidden") or "").strip().lower() == "true":
        return True
    return hides(attributes.get("style") or "")


def rest_of(node: LexborNode, steps: Steps) -> Steps:
    """The steps below the node that was just entered, taken from the same walk, so that none runs twice."""
    this = node.mem_id
    for step, below in steps:
        if step is Step.LEAVE and below.mem_id == this:
            return
        yield step, below


def text_of(steps: Steps) -> str:
    return "".join(node.text_content or "" for step, node in steps if step is Step.TEXT)


_CLUTTER_ROLES = frozenset(("navigation", "banner", "contentinfo", "search", "dialog", "alertdialog"))
# A header, footer or aside inside one of these is part of the text.
_SECTIONS = frozenset(
    ("main", "article", "section", "header", "blockquote", "details", "fieldset", "figure", "td")
)
_LABELS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary"))  # a button in one opens its text
_MIN_MAIN_CHARS = 200


def hide_clutter(page: LexborHTMLParser) -> None:
    """Set `hidden` on everything around the text of a saved page: header and footer, banners, buttons, lists
    of links to its neighbours and its own headings, and all outside its `main` (or only article). What
    contains the only h1 is kept. Linear time."""
    if page.root is None:
        return
    titles = sum(1 for title in page.css("h1") if not is_hidden(title))
    for node in [*_clutter(page.root)]:
        if not titles or len(node.css("h1")) < titles:
            node.attrs["hidden"] = ""
    main = _main(page)
    if main is not None:
        _hide_around(main, keeps_title=titles > 0 and main.css_first("h1") is None)
    for node in _link_lists(page.root):
        node.attrs["hidden"] = ""


def _clutter(root: LexborNode) -> Iterator[LexborNode]:
    """The outermost clutter nodes, which together are no larger than the page."""
    sections = labels = 0
    steps = visible(root)
    for step, node in steps:
        tag, change = node.tag or "", 1 if step is Step.ENTER else -1
        if step is Step.ENTER and _is_clutter(node, in_section=sections > 0, in_label=labels > 0):
            yield node
            for _ in rest_of(node, steps):
                pass
        elif step is not Step.TEXT:
            sections += change * (tag in _SECTIONS)
            labels += change * (tag in _LABELS)


def _is_clutter(node: LexborNode, *, in_section: bool, in_label: bool) -> bool:
    tag, attributes = node.tag or "", node.attributes
    role = (attributes.get("role") or "").strip().lower()
    if role in _CLUTTER_ROLES and tag not in _ALWAYS_SHOWN:
        return True
    if tag == "button":
        return not in_label and "aria-expanded" not in attributes and "aria-controls" not in attributes
    if in_section or role not in ("", "complementary"):
        return False
    return tag in ("footer", "aside") or (tag == "header" and node.css_first("h1") is None)


# What programs that make manuals, wikis and blogs call it (DocBook, Publican, Sphinx, MediaWiki, MkDocs …).
_NAVIGATION = frozenset(
    ("navheader", "navfooter", "docnav", "toc", "toctree-wrapper", "table-of-contents", "list-of-figures",
     "list-of-tables", "list-of-examples", "breadcrumb", "breadcrumbs", "pagination", "nav-panel",
     "nav-links", "sphinxsidebar", "catlinks", "navbox", "printfooter", "cookie-banner", "cookie-notice")
)  # fmt: skip
# The same on pages without <nav> and <footer>; only if it consists of links, as a restaurant has a menu, too.
_MENUS = frozenset(
    ("nav", "navbar", "navigation", "menu", "mainmenu", "topnav", "sidenav", "sidebar", "site-nav", "footer",
     "site-footer", "page-footer", "crumbs", "pager", "skip-link", "languages", "language-menu")
)  # fmt: skip
_MARKS = frozenset(("headerlink", "hash-link", "header-anchor", "anchor-link", "mw-editsection"))  # ¶ [edit]
_BOXES = frozenset(("div", "p", "ul", "ol", "dl", "table", "span", "section"))
_LISTS = frozenset(("ul", "ol", "dl", "table"))
_NEIGHBOURS = frozenset(("next", "prev", "previous", "up"))
_MAX_OTHER_CHARS, _OTHER_SHARE = 200, 0.2
_MIN_LINKS, _MAX_LABEL_CHARS = 3, 30


@dataclass(slots=True)
class _Box:
    """What a block holds: characters in links and others; links, how many of them lead elsewhere on the page
    and how many to the page before, after or above."""

    node: LexborNode
    linked: int = 0
    other: int = 0
    links: int = 0
    inner: int = 0
    neighbours: int = 0
    titles: int = 0

    def add(self, box: _Box) -> None:
        self.linked += box.linked
        self.other += box.other
        self.links += box.links
        self.inner += box.inner
        self.neighbours += box.neighbours
        self.titles += box.titles

    def enter(self, node: LexborNode) -> None:
        self.titles += node.tag == "h1"
        if node.tag == "a" and (href := node.attributes.get("href")):
            self.links += 1
            self.inner += href.startswith("#") and len(href) > 1
            self.neighbours += not _NEIGHBOURS.isdisjoint((node.attributes.get("rel") or "").lower().split())

    @property
    def chars(self) -> int:
        return self.linked + self.other

    @property
    def is_navigation(self) -> bool:
        if self.titles:
            return False
        names = _names(self.node)
        if not _NAVIGATION.isdisjoint(names) and self.other <= _MAX_OTHER_CHARS:
            return True
        if not _MENUS.isdisjoint(names) and self.links and self.other <= self.linked:
            return True
        if self.neighbours and self.links > 1 and self.other <= self.linked:
            return True
        is_own = self.links >= _MIN_LINKS and self.inner == self.links
        return is_own and self.node.tag in _LISTS and self.other <= _OTHER_SHARE * self.linked


def _link_lists(root: LexborNode) -> list[LexborNode]:
    """The blocks that only lead to other places, whose words would match every question, and the marks beside
    headings; only the marks if hardly any other text would be left: the page is a table of contents."""
    hidden: list[_Box] = []
    marks: list[LexborNode] = []
    boxes, in_link = [_Box(root)], 0
    steps = visible(root)
    for step, node in steps:
        if step is Step.TEXT:
            size = len((node.text_content or "").strip())
            boxes[-1].linked += size if in_link else 0
            boxes[-1].other += 0 if in_link else size
        elif step is Step.ENTER and not _MARKS.isdisjoint(_names(node)):
            marks.append(node)
            for _ in rest_of(node, steps):
                pass
        else:
            in_link += (1 if step is Step.ENTER else -1) * (node.tag == "a")
            _box_step(boxes, step, node, hidden)
    enough = min(_MIN_MAIN_CHARS, sum(box.chars for box in hidden))
    return [*marks, *(box.node for box in hidden)] if boxes[0].chars >= enough else marks


def _box_step(boxes: list[_Box], step: Step, node: LexborNode, hidden: list[_Box]) -> None:
    if step is Step.ENTER:
        boxes[-1].enter(node)
        if node.tag in _BOXES:
            boxes.append(_Box(node))
    elif node.tag in _BOXES:
        box = boxes.pop()
        if box.is_navigation:
            hidden.append(box)
        else:
            boxes[-1].add(box)


def _names(node: LexborNode) -> list[str]:
    attributes = node.attributes
    return (
        f"{attributes.get('class') or ''} {attributes.get('id') or ''}".lower().split() if attributes else []
    )


def is_contents(page: LexborHTMLParser) -> bool:
    """Whether a book's page has hardly any text but links to other places in the book."""
    links = page.css("a[href]")
    linked = sum(len("".join(link.text().split())) for link in links)
    other = (len("".join(page.body.text().split())) if page.body is not None else 0) - linked
    leads_away = any(":" in (link.attributes.get("href") or "") for link in links)
    return (
        len(links) >= _MIN_LINKS and not leads_away and other <= max(_OTHER_SHARE * linked, _MAX_LABEL_CHARS)
    )


def _main(page: LexborHTMLParser) -> LexborNode | None:
    """The node that the page marks as its main text, if it has enough text."""
    mains = [node for node in page.css("main, [role=main]") if not is_hidden(node)] or page.css("article")
    if len(mains) != 1:
        return None
    chars = 0
    for step, node in visible(mains[0]):
        chars += len((node.text_content or "").strip()) if step is Step.TEXT else 0
        if chars >= _MIN_MAIN_CHARS:
            return mains[0]
    return None


def _hide_around(main: LexborNode, *, keeps_title: bool) -> None:
    node: LexborNode | None = main
    while node is not None and node.tag not in _ALWAYS_SHOWN:
        for other in (*_siblings(node, "prev"), *_siblings(node, "next")):
            if other.is_element_node and not (keeps_title and (other.tag == "h1" or other.css_first("h1"))):
                other.attrs["hidden"] = ""
        node = node.parent


def _siblings(node: LexborNode, direction: str) -> Iterator[LexborNode]:
    other: LexborNode | None = getattr(node, direction)
    while other is not None:
        yield other
        other = getattr(other, direction)


_HIDING = re.compile(
    r"(?<![\w-])(?:display\s{0,4}:\s{0,4}none|visibility\s{0,4}:\s{0,4}hidden"
    r"|font-size\s{0,4}:\s{0,4}0(?![.\d]*[1-9])|opacity\s{0,4}:\s{0,4}0(?![.\d]*[1-9]))",
    re.IGNORECASE,
)
_RULE_HIDES = re.compile(
    r"(?<![\w-])(?:display\s{0,4}:\s{0,4}none|visibility\s{0,4}:\s{0,4}hidden)", re.IGNORECASE
)
_SHOWS = re.compile(
    r"(?<![\w-])(?:display\s{0,4}:\s{0,4}(?!none)[a-z]|visibility\s{0,4}:\s{0,4}visible)", re.IGNORECASE
)
_BRACES = re.compile("[{};]")
_PLAIN_SELECTOR = re.compile(r"[.#][\w-]+")
_LENGTH = re.compile(r"([-+]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}))(px|r?em|pt|%)?$")
_OFF_SCREEN = -999.0
_MIN_PX = 1.0


def hides(style: str) -> bool:
    """Whether a `style` attribute makes the element invisible."""
    if _HIDING.search(style):
        return True
    declared = _declarations(style)
    return _is_off_screen(declared) or _is_closed(declared) or _is_tiny(declared.get("font-size", ""))


def hide_by_sheets(page: LexborHTMLParser) -> None:
    """Set `hidden` on what `.class` and `#id` rules of the page's <style> hide. Linear time.

    The cascade is not computed. A class or id that any rule shows again counts as visible, and rules inside
    @media and the like hide nothing: better to read some hidden text than to lose visible text.
    """
    hidden = _hidden_selectors(page)
    if not hidden:
        return
    for node in page.css("[class], [id]"):
        names = [f".{name}" for name in (node.attributes.get("class") or "").split()]
        names.append(f"#{node.attributes.get('id') or ''}")
        if not hidden.isdisjoint(names) and not _SHOWS.search(node.attributes.get("style") or ""):
            node.attrs["hidden"] = ""


def _declarations(style: str) -> dict[str, str]:
    pairs = (each.partition(":") for each in style.lower().split(";"))
    return {name.strip(): value.partition("!")[0].strip() for name, _, value in pairs}


def _is_off_screen(declared: Mapping[str, str]) -> bool:
    moved = declared.get("position", "static") in ("absolute", "fixed", "relative")
    places = [declared.get("text-indent", ""), *(declared.get(side, "") for side in ("left", "top") if moved)]
    return any(_size(place, ("px", "em", "rem", "pt")) <= _OFF_SCREEN for place in places)


def _is_closed(declared: Mapping[str, str]) -> bool:
    """Whether it is collapsed to zero size. Padding keeps an element open, as in responsive video frames."""
    if declared.get("overflow") not in ("hidden", "clip") or any(
        name.startswith("padding") for name in declared
    ):
        return False
    return any(_size(declared.get(side, "")) == 0 for side in ("height", "width"))


def _is_tiny(font_size: str) -> bool:
    return 0 <= _size(font_size, ("px",)) <= _MIN_PX


def _size(value: str, units: tuple[str, ...] = ()) -> float:
    """The size in any of these units, else infinity; 0 is 0 in all units."""
    match = _LENGTH.match(value)
    if match is None:
        return float("inf")
    size = float(match[1])
    return size if size == 0 or match[2] in units else float("inf")


def _hidden_selectors(page: LexborHTMLParser) -> set[str]:
    hidden: set[str] = set()
    shown: set[str] = set()
    for sheet in page.css("style"):
        if "print" in (sheet.attributes.get("media") or "").lower():
            continue
        for selectors, body, is_plain in _rules(_without_comments(sheet.text())):
            if _SHOWS.search(body):
                shown.update(_PLAIN_SELECTOR.findall(selectors))
            elif is_plain and _RULE_HIDES.search(body):
                names = map(str.strip, selectors.split(","))
                hidden.update(name for name in names if _PLAIN_SELECTOR.fullmatch(name))
    return hidden - shown


def _rules(css: str) -> Iterator[tuple[str, str, bool]]:
    """Selectors and body of each rule without nested rules, and whether it is itself at the top level."""
    depth = start = 0
    selectors = ""
    for mark in _BRACES.finditer(css):
        if mark[0] == ";" and selectors:
            continue
        text = css[start : mark.start()].strip()
        start = mark.end()
        if mark[0] == "{":
            depth, selectors = depth + 1, text
        elif mark[0] == "}":
            if selectors and not selectors.startswith("@"):
                yield selectors, text, depth == 1
            depth, selectors = max(0, depth - 1), ""


def _without_comments(css: str) -> str:
    """A loop, because a regular expression would search to the end for every unclosed comment."""
    parts: list[str] = []
    at = 0
    while (start := css.find("/*", at)) >= 0:
        parts.append(css[at:start])
        end = css.find("*/", start + 2)
        at = end + 2 if end >= 0 else len(css)
    return "".join([*parts, css[at:]])
