"""Answers from an office's own documents, without a model: what a reader sees, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.evaluation.run import Options, evaluate
from tests.support.environment import ROOT
from tests.support.servers.app import make_settings, open_app

OFFICE = ROOT / "tests" / "data" / "office"
BINDERY = (
    "Do not repair torn pages with tape: bring the book to the bindery on level B1, which mends it free of "
    "charge within a week, and lends a second copy meanwhile where there is one on the shelves."
)
DRINKS = (
    "Food is forbidden in all reading rooms. Drinks in closed bottles are allowed except with rare books."
)
LOST = (
    "Whoever loses a book pays its price and 15 pounds. If it comes to light again within a year, that is "
    "paid back. Underlining, notes and stains of any kind are damage; whoever finds some tells the desk "
    "before taking the book home, so that nobody pays for what somebody else did."
)


async def test_the_article_nearest_in_meaning_is_quoted(tmp_path: Path) -> None:
    """Discriminates: quoting by words alone, of which the question has none; a part of a question that counts
    when passages are judged, but not when they are quoted."""
    rules = "\n\n".join(("# Care of books", f"4.1 {BINDERY}", f"4.2 {DRINKS}", f"4.3 {LOST}"))
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("rules.md", rules)
        answer = (await app.ask("Is it ok to bring coffee in?")).answer
    assert answer.startswith("The closest passage I found:")
    assert f"> 4.2 {DRINKS} [1]" in answer


RULES = """# Pool

## Lifeguards

Lifeguards change every four hours: the early watch is from 6:00 to 10:00, the noon watch from 10:00 to 14:00.

## Lockers

A locker takes a one-euro coin. Lost keys cost 25 euros.

## Courses

Children learn to swim in groups of eight; the first lesson is free. Trainees may not teach without a coach.
"""


async def test_a_part_of_a_question_without_a_passage_is_searched_separately(tmp_path: Path) -> None:
    """Discriminates: a single search for both parts, which finds what is near to the longer one."""
    question = "{}, and may a trainee teach a group of children to swim without a coach?"
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        await app.add_text("pool.md", RULES)
        for part, words in (
            ("How much for a lost key", "25 euros"),
            ("When does the early watch begin", "6:00"),
        ):
            answer = (await app.ask(question.format(part))).answer
            assert words in answer
            assert "Trainees may not teach" in answer


@pytest.mark.full("embeds fourteen documents and asks thirty questions")
@pytest.mark.slow("embeds fourteen documents and asks thirty questions")
async def test_most_answers_of_a_handbook_are_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: quoting a table's header without its rows, or a question of an FAQ without its answer.

    When the test was written: of its questions 27 had an answer, 4 did not.
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
