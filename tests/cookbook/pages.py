"""The pages of docs/cookbook, and their contents."""

from __future__ import annotations

import re
from pathlib import Path

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook"
LANGUAGES = ("en", "zh")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def page(language: str, name: str) -> str:
    return (COOKBOOK / language / f"{name}.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Map each second-level heading to the text below it."""
    return {part.splitlines()[0]: part for part in re.split(r"^## ", text, flags=re.M)[1:]}


def blocks(text: str) -> list[tuple[str, str]]:
    """Return language and text of every fenced block, in order."""
    return _BLOCK.findall(text)


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of the page's tables, except the headers."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for at, row in enumerate(cells) if set(row[0]) != {"-"} and _follows_no_rule(cells, at)]


def _follows_no_rule(cells: list[list[str]], at: int) -> bool:
    """Whether the row is not a header, i.e. no rule of dashes follows it."""
    return at + 1 == len(cells) or set(cells[at + 1][0]) != {"-"}
