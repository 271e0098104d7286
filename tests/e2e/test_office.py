"""Answers on an office's own documents, without a model: what a reader can see, and what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import App, make_settings, open_app
from tests.support.wire.copies import bring_in, qa

OFFICE = Path(__file__).parents[1] / "data" / "office"
_UNSEEN = re.compile(r"[\s*`>\\]+")
# Of the questions that were looked at while this was made: 27 with an answer, 4 without.
LEAST_READABLE, MOST_REFUSED, MOST_SURE = 20, 4, 1
SURE = "资料中的相关内容"  # else: the closest there is, or nothing


def shows(answer: str, alternative: str) -> bool:
    """Whether a reader sees it, whatever marks stand between; of a table's row every cell."""
    cells = [_UNSEEN.sub("", cell) for cell in alternative.split("|")]
    return all(cell in answer for cell in cells)


async def outcome(app: App, question: dict[str, Any]) -> str:
    said = [each["content"] for each in question["history"]]
    session = {}
    if said:
        turns = [qa(asked, answer) for asked, answer in zip(said[::2], said[1::2], strict=True)]
        session = {"session_id": (await bring_in(app, turns=turns))["session_id"]}
    turn = await app.ask(question["question"], **session)
    if not question["answerable"]:
        return "sure" if turn.answer.startswith(SURE) else "refused rightly or the closest"
    answer = _UNSEEN.sub("", turn.answer)
    if all(any(shows(answer, each) for each in fact) for fact in question["answers"]):
        return "readable"
    return "missed" if turn.sources else "refused"


@pytest.mark.full("embeds fourteen documents and asks thirty questions")
@pytest.mark.slow("embeds fourteen documents and asks thirty questions")
async def test_most_answers_of_a_handbook_can_be_read(tmp_path: Path) -> None:
    """Discriminates: quoting a table's header without its rows, or a question of a FAQ without its answer."""
    folder = OFFICE / "hr_zh"
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [each for line in lines if (each := json.loads(line))["split"] == "dev"]
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        for path in sorted((folder / "documents").iterdir()):
            added = await app.client.post("/documents", files={"file": (path.name, path.read_bytes())})
            await app.container.knowledge.wait(added.json()["job_id"], ["local"])
        outcomes = Counter([await outcome(app, question) for question in questions])
    assert outcomes["readable"] >= LEAST_READABLE, outcomes
    assert outcomes["refused"] <= MOST_REFUSED, outcomes
    assert outcomes["sure"] <= MOST_SURE, outcomes
