"""The pictures of the architecture page show the code as it is."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.house.picture import IMAGES, missing_steps, pictures


@pytest.mark.slow("draws the pictures from the imports of every module")
@pytest.mark.parametrize("name", ["rooms.svg", "question.svg"])
def test_the_picture_is_what_make_map_draws_now(name: str) -> None:
    """Discriminates: an import between rooms that the picture does not show."""
    assert (IMAGES / name).read_text(encoding="utf-8") == pictures()[name], "make map draws it anew"


@pytest.mark.parametrize("name", ["rooms.svg", "question.svg"])
def test_the_picture_is_well_formed(name: str) -> None:
    assert ElementTree.fromstring(pictures()[name]).tag == "{http://www.w3.org/2000/svg}svg"


def test_every_step_of_the_question_is_in_the_code() -> None:
    assert missing_steps() == []
