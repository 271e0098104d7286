"""Texts that would run a script, or call home, if any of them ever became markup.

A shape is named by its kind, so that a failure says which: "schemes.link-data-html".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from tests.browser.safety.payloads import (
    characters,
    clobbering,
    frames,
    handlers,
    markdown_tricks,
    modern,
    mutation,
    schemes,
    scripts,
    svg_math,
)
from tests.browser.safety.payloads.leaks import markdown, markup, styles
from tests.browser.safety.payloads.marks import HOST, RAN


@dataclass(frozen=True)
class Shape:
    name: str
    text: str


def _of(*modules: ModuleType) -> tuple[Shape, ...]:
    results: list[Shape] = []
    for module in modules:
        kind = module.__name__.rpartition(".")[2]
        shapes: Mapping[str, str] = module.SHAPES
        results.extend(Shape(f"{kind}.{name}", text) for name, text in shapes.items())
    return tuple(results)


XSS = _of(
    scripts, handlers, frames, mutation, clobbering, schemes, markdown_tricks, svg_math, modern, characters
)  # fmt: skip
LEAKS = _of(markdown, markup, styles)
SHAPES = (*XSS, *LEAKS)


def _few() -> tuple[str, ...]:
    """Some of each kind that fit on one line, to test a single place that shows text."""
    short = [shape.text for shape in SHAPES if shape.text.isprintable() and len(shape.text) < 120]
    first = [scripts.SHAPES["script"], scripts.SHAPES["img-onerror"], handlers.SHAPES["svg-onload"]]
    return (*first, *short[5::6], markdown.SHAPES["link-bare"])


HOSTILE = _few()

__all__ = ["HOST", "HOSTILE", "LEAKS", "RAN", "SHAPES", "XSS", "Shape"]
