"""The page of results: plots that are valid XML, of the measured figures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.evaluation.judging import turn_figures
from scripts.evaluation.plots import BARS, bars, write_page
from scripts.evaluation.report import SetReport

SVG = "{http://www.w3.org/2000/svg}"


def test_the_length_of_a_bar_is_its_figure_and_an_unknown_figure_has_none() -> None:
    drawn = bars("A & B", "share", {"one <set>": {"ours": 0.5, "other": None}, "two": {"other": 1.0}})
    tree = ElementTree.fromstring(drawn)
    widths = [float(rect.get("width", 0)) for rect in tree.iter(f"{SVG}rect") if rect.get("height") != "10"]
    assert widths == pytest.approx([BARS / 2, BARS])
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert {"one <set>", "ours", "other", "0.500", "1.000"} <= set(texts)


def test_a_page_shows_the_plots_for_the_existing_figures(tmp_path: Path) -> None:
    """Discriminates: a picture that is linked but not written."""
    write_page(tmp_path, [SetReport("office", turns={"": turn_figures([])})])
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\w+\.svg)\)", page) == ["turns.svg"]
    assert [path.name for path in tmp_path.glob("*.svg")] == ["turns.svg"]
    assert "| office | 0 |" in page
