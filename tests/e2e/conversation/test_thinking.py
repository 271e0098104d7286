"""Turns of models whose answers begin in thinking, or seem to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from tests.support.servers.app import make_settings, open_app, scripted

ECHO = ("The tag is\n", "</think>\n", "as you asked.")


def settings(tmp_path: Path, *script: str | float, name: str) -> Settings:
    models: dict[str, Any] = {"llms": {"default": scripted(*script, model=name)}, "max_answer_chars": 1_000}
    return make_settings(tmp_path, models=models)


async def test_thinking_that_met_a_limit_is_no_answer_and_no_history(tmp_path: Path) -> None:
    """Discriminates: sending half a thinking again as the answer, completed, which later prompts repeat."""
    async with open_app(settings(tmp_path, *["Hm, let me see. "] * 100, name="deepseek-r1:8b")) as app:
        turn = await app.ask("Why?", thinking=True)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    assert (turn.answer, len(turn.text("THINK"))) == ("", 1_000)
    assert (stored["status"], stored["answer"]) == ("failed", "")
    assert stored["thinking"] == turn.text("THINK")


async def test_a_model_wrongly_taken_for_thinking_answers_and_is_no_longer_taken_for_it(
    tmp_path: Path,
) -> None:
    """Discriminates: a turn that tells the model nothing; content that is lost."""
    async with open_app(settings(tmp_path, "It is ", "so.", name="deepseek-r1:8b")) as app:
        first = await app.ask("Why?", thinking=True)
        second = await app.ask("Why?", thinking=True)
    assert (first.answer, first.text("THINK")) == ("It is so.", "It is so.")
    assert (second.answer, second.text("THINK")) == ("It is so.", "")


async def test_the_next_answer_after_an_echoed_tag_is_read_as_before(tmp_path: Path) -> None:
    """Discriminates: learning from one answer, or counting those that had a plain one between them."""
    async with open_app(settings(tmp_path, *ECHO, name="m")) as app:
        model = app.container.llms.get("default")
        first = await app.ask("Say the tag.", thinking=True)
        assert not model.starts_in_thinking
        second = await app.ask("Why?", thinking=True)
        assert model.starts_in_thinking
        third = await app.ask("Why?", thinking=True)
    assert first.answer == second.answer == "".join(ECHO)
    assert (third.text("THINK"), third.answer) == ("The tag is", "as you asked.")


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_how_long_it_thought_is_told_and_kept(tmp_path: Path) -> None:
    """Discriminates: a time that is only in the stream; one for an answer without thinking."""
    script = ("<think>Hm", 0.05, ", so.</think>", "Yes.")
    async with open_app(settings(tmp_path, *script, name="m")) as app:
        turn = await app.ask("Why?", thinking=True)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    timings = turn.finished["timings_ms"]
    assert 40 <= timings["thinking"] == stored["timings_ms"]["thinking"] <= timings["generate"]
    async with open_app(settings(tmp_path, "Yes.", name="m")) as app:
        plain = await app.ask("Why?", thinking=True)
    assert "thinking" not in plain.finished["timings_ms"]
