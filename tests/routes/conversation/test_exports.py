"""An exported turn is the turn that an import creates from it."""

from __future__ import annotations

import json
from dataclasses import replace

from core.conversation.turns import (
    AskedWith,
    Feedback,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
)
from core.knowledge import Citation, KnowledgeFilter
from routes.conversation.transfer import exported_turn
from routes.dependencies import read_model
from routes.wire.imports import ImportBody
from routes.wire.transfer import ImportTurn

OWN, OTHER = "7d0f4f0e-6a52-4a3b-9d0c-0a5d0c9f2a11", "c1a7a0c2-33f1-4a52-8f0a-5a4a6d1f0b77"
NOW_US = 1_769_850_000_000_000
TURN = Turn(
    turn_id=OWN,
    session_id="",
    owner="",
    question="父子链?",
    created_us=NOW_US,
    status=TurnStatus.CANCELLED,
    parent_turn_id=OTHER,
    answer="见 [1]",
    thinking="hm",
    sources=(
        Citation(1, "d", "f.md", "c", 0.5, 2, "h", 3, 9, "key", "the key", "why", True, 4, 7, "9f", "2026"),
    ),
    model_id="m",
    token_count=3,
    usage=Usage(5, 3, estimated=False),
    timings_ms={"total": 12.5},
    summary=Summary("short", OTHER, (OTHER,), None, "m", NOW_US, 2),
    finish_reason="length",
    filters=KnowledgeFilter(tags=("a",), since="2026"),
    request=AskedWith(thinking=True, rerank_top_n=3, date="2020-05"),
    feedback=Feedback("up", "good"),
    warnings=(TurnWarning("history_short", "left out", {"dropped": 2}),),
    rewritten=RewrittenQuestion("what", (OTHER,)),
)


def test_every_field_of_an_import_is_exported() -> None:
    """Discriminates: a field that is added to only one of the two."""
    assert set(exported_turn(TURN, lambda _: True)) == set(ImportTurn.model_fields)


def test_an_exported_turn_is_imported_unchanged() -> None:
    """Discriminates: a field that is lost in either direction."""
    for turn in (
        TURN,
        replace(TURN, command="help", summary=None, rewritten=None, request=None, feedback=None),
    ):
        body = json.dumps({"turns": [exported_turn(turn, lambda _: True)]}).encode()
        (read,) = read_model(ImportBody, body).to_import("").turns
        assert read == turn
