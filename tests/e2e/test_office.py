"""Answers on an office's own documents, without a model: what a reader can see, and what is refused."""

from __future__ import annotations

import pytest

from scripts.evaluation.run import Options, evaluate
from tests.support.environment import ROOT

OFFICE = ROOT / "tests" / "data" / "office"


@pytest.mark.full("embeds fourteen documents and asks thirty questions")
@pytest.mark.slow("embeds fourteen documents and asks thirty questions")
async def test_most_answers_of_a_handbook_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: quoting a table's header without its rows, or a question of a FAQ without its answer.

    Of the questions that were looked at while this was made: 27 with an answer, 4 without.
    """
    monkeypatch.setenv("EMBEDDING", "bundled")
    monkeypatch.setenv("WENMAI_CONFIG", "")
    (report,) = await evaluate(Options(sets=(OFFICE / "hr_zh",), split="dev"))
    figures = report.turns[""]
    assert (figures.answerable, figures.unanswerable) == (27, 4)
    assert (figures.first or 0) >= 20 / 27, figures
    assert (figures.readable or 0) >= 20 / 27, figures
    assert (figures.refused_wrongly or 0) <= 4 / 27, figures
    assert (figures.sure or 0) <= 1 / 4, figures
    assert figures.in_language == 1.0, figures
