"""Which parts of a stored point are embedded."""

from __future__ import annotations

from typing import Any

import pytest

from config.settings import StoreSettings
from services.operations.reembedding.level import PointTexts, point_texts
from services.store.collections import collection_specs

TURNS, CHUNKS, *_ = collection_specs(StoreSettings())
EXCHANGE = {"user_query": "q", "assistant_response": "a"}
TEXT = "用户: q\n助手: a"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({**EXCHANGE, "status": "completed"}, PointTexts("q", TEXT, TEXT)),
        (EXCHANGE, PointTexts("q", TEXT, TEXT)),
        ({**EXCHANGE, "status": "cancelled"}, PointTexts("q", "", TEXT)),
        ({"user_query": "q", "assistant_response": "", "status": "failed"}, PointTexts("q")),
        ({"user_query": "q", "assistant_response": "", "status": "running"}, PointTexts("q")),
        ({**EXCHANGE, "status": "completed", "command": "help"}, PointTexts()),
        ({"user_query": 7, "assistant_response": None, "status": "failed"}, PointTexts()),
    ],
    ids=["completed", "of an earlier version", "cancelled", "failed", "running", "a command", "unreadable"],
)
def test_a_turn_has_the_vectors_for_its_status(payload: dict[str, Any], expected: PointTexts) -> None:
    assert point_texts(TURNS, payload) == expected


def test_a_chunk_of_a_dated_document_is_embedded_with_its_date() -> None:
    payload = {"text": "七天内退款", "heading": "售后", "date": "2026-03"}
    assert point_texts(CHUNKS, payload).passage == "售后 2026-03\n七天内退款"


def test_a_chunk_without_a_heading_is_embedded_with_its_title_and_an_old_one_unchanged() -> None:
    payload = {"text": "七天内退款", "heading": "", "date": "", "file_name": "退货说明.txt"}
    assert point_texts(CHUNKS, payload).passage == "七天内退款"
    assert point_texts(CHUNKS, {**payload, "title": "退货说明"}).passage == "退货说明\n七天内退款"
