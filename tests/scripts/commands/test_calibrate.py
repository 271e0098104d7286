"""`wenmai calibrate` beside a running server: shown, stored, undone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from scripts import wenmai
from tests.support.servers.app import App, make_settings, serving

COLOURS = ("red", "blue", "green", "white", "black", "brown", "grey", "pink", "gold", "teal", "lime", "amber")
FACTS = {name: f"The {name} room opens at {hour} and closes at noon." for hour, name in enumerate(COLOURS, 1)}
UNKNOWN = ("Who won the cup?", "What is a quark?", "Where do swallows winter?", "Is rain wet?", "Why me?",
           "How tall is Ararat?", "Which opera is longest?", "Who invented zero?")  # fmt: skip


def questions(folder: Path) -> Path:
    rows = [
        *({"question": f"When does the {name} room open?", "passage": text} for name, text in FACTS.items()),
        *({"question": text, "answerable": False} for text in UNKNOWN),
    ]
    file = folder / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


async def calibrate(url: str, *arguments: str) -> int:
    return await asyncio.to_thread(wenmai.main, ["calibrate", "--url", url, *arguments])


async def test_nothing_changes_before_apply_and_an_undo_restores_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a dry run that is stored; a calibration that the search does not use; a lost undo."""
    async with (
        serving(make_settings(tmp_path / "data")) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,  # an upload may take the server five seconds
    ):
        for name, text in FACTS.items():
            added = (await client.post("/documents", files={"file": (f"{name}.md", text.encode())})).json()
            await client.get(f"/jobs/{added['job_id']}/stream")  # to its end

        async def best() -> float:
            hits = await client.post("/search", json={"question": "When does the red room open?"})
            return float(hits.json()["candidates"][0]["probability"])

        before, file = await best(), str(questions(tmp_path))
        assert await calibrate(url, file) == 0
        printed = capsys.readouterr().out
        assert "from 20 questions" in printed
        assert "Nothing is changed" in printed
        assert await best() == before
        assert await calibrate(url, file, "--apply") == 0
        applied = await best()
        assert applied != before
        assert await calibrate(url, "--show") == 0
        assert "from 20 questions" in capsys.readouterr().out
        assert await calibrate(url, "--undo") == 0
        assert await best() == before
        assert await calibrate(url, "--undo") == 2
        assert "nothing to undo" in capsys.readouterr().err


async def test_unusable_input_is_refused_in_a_line(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = {
        (): "One of these is needed: QUESTIONS.jsonl, --ratings, --undo, --show.",
        ("a.jsonl", "--show"): "QUESTIONS.jsonl cannot be combined with --show.",
        ("none.jsonl",): "wenmai: none.jsonl cannot be read: No such file or directory\n",
    }
    monkeypatch.chdir(tmp_path)
    for arguments, line in refusals.items():
        assert await asyncio.to_thread(wenmai.main, ["calibrate", *arguments]) == 2
        assert line in capsys.readouterr().err
    for body in ({}, {"ratings": True, "questions": [{"question": "x"}]}):
        refused = await app.client.post("/admin/calibration", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_field"), refused.text
    few = await app.client.post("/admin/calibration", json={"questions": [{"question": "x"}]})
    assert (few.status_code, "at least 20" in few.text) == (422, True), few.text
    rated = await app.client.post("/admin/calibration", json={"ratings": True})
    assert (rated.status_code, "0 questions" in rated.text) == (422, True), rated.text
