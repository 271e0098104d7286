"""Receipts: what was done to everybody's data, when, why, and how much of it. Kept in the store.

A receipt never holds a text, a title, or an id of what was erased: `subject` is a SHA-256 of the id, so that
who knows the id can find the receipt, and nobody learns the id from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum


class ReceiptKind(StrEnum):
    EXPIRY = "expiry"
    ERASURE = "erasure"
    REPAIR = "repair"
    BACKUP = "backup"
    RESTORE = "restore"
    MIGRATION = "migration"
    REEMBEDDING = "reembedding"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Times are UTC microseconds, sizes bytes on the disk (None: the engine does not say).

    `reason` says who asked: "schedule", "request" or "command". `counts` are numbers by what was counted;
    `details` short plain words such as the cutoff. `error` is empty when it was done to its end.
    """

    receipt_id: str
    kind: ReceiptKind
    reason: str
    began_us: int
    ended_us: int
    counts: dict[str, int] = field(default_factory=dict)
    bytes_before: int | None = None
    bytes_after: int | None = None
    subject: str = ""
    details: dict[str, str] = field(default_factory=dict)
    error: str = ""


def subject_of(kind: str, name: str) -> str:
    """The fingerprint of an id; `kind` is what it names: turn, session, document or owner."""
    return hashlib.sha256(f"{kind}:{name}".encode()).hexdigest()
