"""The guide's page of fields, stages and codes matches the code, and every code can occur."""

from __future__ import annotations

import re

import pytest

from core.conversation.turns import TurnStage, WarnCode
from routes.wire.chat import ChatBody
from tests.house import imports as graph
from tests.house.reference import GUIDE, LANGUAGES, declared_codes, page, statuses, texts


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_what_the_code_makes_now(language: str) -> None:
    """Discriminates: a code, a stage or a field that was added, or a status that changed."""
    assert (GUIDE / language / "reference.md").read_text(encoding="utf-8") == page(language), "make map"


def test_everything_has_its_meaning_and_nothing_else_has() -> None:
    words = texts()
    assert set(words["codes"]) == set(statuses())
    assert set(words["stages"]) == set(TurnStage)
    assert set(words["warnings"]) == set(WarnCode)
    assert set(words["fields"]) == set(ChatBody.model_fields)


def test_every_code_comes_about_in_a_test() -> None:
    """Discriminates: a code that cannot occur, and a test that was renamed or no longer produces its code."""
    places = texts()["tests"]
    assert set(places) == set(statuses())
    classes = {code: name for code, (name, _) in declared_codes().items()}
    missing = []
    for code, place in places.items():
        path, _, name = place.partition("::")
        text = (graph.ROOT / path).read_text(encoding="utf-8")
        shows = re.search(rf'"{code}"|\b{classes.get(code, code)}\b', text)
        if not shows or (name and f"def {name}(" not in text):
            missing.append(f"{code}: {place}")
    assert missing == []
