"""The tree in the docstring of core.errors is the tree of its classes; the location of an error."""

from __future__ import annotations

import re

from core import errors
from core.errors import WenmaiError, where

BRANCH = re.compile(r"^(?P<stem>(?:[│ ] {3})*)[├└]── (?P<name>\w+)")
STEP = 4  # characters of the drawing for each level


def drawn_edges(drawing: str) -> list[tuple[str, str]]:
    """Child and parent of every line of the tree, top to bottom."""
    path = ["WenmaiError"]
    edges = []
    for line in drawing.splitlines():
        if branch := BRANCH.match(line):
            depth = len(branch["stem"]) // STEP + 1
            edges.append((branch["name"], path[depth - 1]))
            path[depth:] = [branch["name"]]
    return edges


def class_edges(parent: type[WenmaiError] = WenmaiError) -> list[tuple[str, str]]:
    """Child and parent of every error class of the module, in the order of their definition."""
    edges = []
    for child in parent.__subclasses__():
        if child.__module__ == errors.__name__:
            edges += [(child.__name__, parent.__name__), *class_edges(child)]
    return edges


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    drawing = errors.__doc__ or ""
    assert "\nWenmaiError\n" in drawing
    assert sorted(drawn_edges(drawing)) == sorted(class_edges())


def test_a_drawing_is_read_by_its_indentation() -> None:
    """Discriminates: a child read as a sibling; a name read from a note beside it."""
    drawing = "WenmaiError\n├── A      like B\n│   └── B\n│       └── C\n└── D\n    └── E\n"
    assert drawn_edges(drawing) == [
        ("A", "WenmaiError"),
        ("B", "A"),
        ("C", "B"),
        ("D", "WenmaiError"),
        ("E", "D"),
    ]


SECRET = "sk-what-was-asked"


def raise_below(depth: int, text: str) -> None:
    if depth:
        raise_below(depth - 1, text)
    raise ValueError(text)


def test_an_error_is_described_by_its_innermost_frames_and_never_by_its_message() -> None:
    """Discriminates: the outermost frames; the message or the source lines among them."""
    try:
        raise_below(7, SECRET)
    except ValueError as error:
        frames = where(error)
    assert len(frames) == 5
    assert [line.partition(":")[0] for line in frames] == [__name__] * 5
    assert all(line.endswith(" in raise_below") for line in frames)
    raised, called = (int(line.split(":")[1].split()[0]) for line in (frames[-1], frames[0]))
    assert raised == called + 1
    assert not any(SECRET in line or "ValueError(" in line for line in frames)


def test_an_error_that_was_never_raised_has_no_location() -> None:
    assert where(ValueError(SECRET)) == []
