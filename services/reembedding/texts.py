"""What a stored point was embedded from: its texts, read from its payload as the rest of Wenmai makes them.

Payloads of earlier versions lack fields, so they are read leniently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.knowledge import Chunk
from core.turns import Turn, TurnStatus
from services.collections import CollectionSpec
from services.query_builder import embedded_part
from services.turn_indexing import EMBEDDED_TURN_CHARS


@dataclass(frozen=True, slots=True)
class PointTexts:
    """What a point is found by; an empty text has no vector."""

    question: str = ""
    passage: str = ""
    words: str = ""


def point_texts(spec: CollectionSpec, payload: Mapping[str, Any]) -> PointTexts:
    """Turns have a question side, chunks and memories only a passage, documents and sessions nothing."""
    if not spec.dense:
        return PointTexts()
    return _turn_texts(payload) if "question" in spec.dense else _passage_texts(payload)


def _turn_texts(payload: Mapping[str, Any]) -> PointTexts:
    """As ConversationManager stores a turn. Earlier versions wrote no status: their turns are complete."""
    if payload.get("command"):
        return PointTexts()
    status = payload.get("status", TurnStatus.COMPLETED)
    question, answer = _text(payload, "user_query"), _text(payload, "assistant_response")
    text = Turn("", "", "", question, 0, TurnStatus.COMPLETED, assistant_response=answer).text
    return PointTexts(
        question=embedded_part(question),
        passage=text[:EMBEDDED_TURN_CHARS] if status == TurnStatus.COMPLETED else "",
        words=text if status == TurnStatus.COMPLETED or (answer and status != TurnStatus.RUNNING) else "",
    )


def _passage_texts(payload: Mapping[str, Any]) -> PointTexts:
    text, heading, date = (_text(payload, key) for key in ("text", "heading", "date"))
    indexed = Chunk("", "", "", text, 0, heading=heading, date=date).indexed_text if text else ""
    return PointTexts(passage=indexed, words=indexed)


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""
