"""Stored points as a repair reads them: earlier versions wrote less, and in other types."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

from core.operations.backfill_turns import PointId, Repair, StoredTurn
from services.store.dialect import Record, VectorStore
from services.store.pages import batches

FIELDS = [*(repair.value for repair in Repair), "session_id", "legacy_turn_id", "legacy_point_id"]

T = TypeVar("T")


def stored_turn(record: Record) -> StoredTurn:
    payload = record.payload or {}
    return StoredTurn(
        point_id=point_id_of(record),
        turn_id=text_of(payload.get("turn_id")),
        parent_turn_id=text_of(payload.get("parent_turn_id")),
        timestamp=text_of(payload.get("timestamp")) or "",
        created_us=number_of(payload.get("created_us")),
        seq=number_of(payload.get("seq")),
        owner=text_of(payload.get("owner")) or None,
        status=text_of(payload.get("status")),
        schema=number_of(payload.get("schema")),
        legacy_turn_id=text_of(payload.get("legacy_turn_id")),
        legacy_point_id=payload.get("legacy_point_id"),
    )


def point_id_of(record: Record) -> PointId:
    return record.id if isinstance(record.id, int) else str(record.id)


def text_of(value: object) -> str | None:
    """Numbers were used as ids once; what children call them is their text."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


async def existing_points(store: VectorStore, collection: str, ids: Sequence[Any]) -> set[str]:
    """Those that are points of the collection."""
    existing: set[str] = set()
    for page in batches(ids):
        records = await store.retrieve(collection, page, with_payload=False)
        existing |= {str(record.id) for record in records}
    return existing


async def text_digests(store: VectorStore, collection: str, points: Sequence[PointId]) -> dict[PointId, str]:
    """Of question and answer; "" where there is no question."""
    digests: dict[PointId, str] = {}
    for page in batches(points):
        records = await store.retrieve(collection, page, with_payload=["user_query", "assistant_response"])
        digests |= {point_id_of(record): _digest(record) for record in records}
    return digests


def _digest(record: Record) -> str:
    payload = record.payload or {}
    question, answer = text_of(payload.get("user_query")), text_of(payload.get("assistant_response"))
    if not question:
        return ""
    return hashlib.sha256(f"{len(question)}:{question}{answer or ''}".encode(errors="replace")).hexdigest()
