"""Reports of operations: findings, one plain line for each check of the doctor; and receipts, stored in the
store: what was done to the data, when, why, and to how much of it.

No finding holds a key, a text, a title or an owner: it may be sent to anybody who helps. No receipt holds a
text, a title, or an id of what was erased: `subject` is a SHA-256 of the id, so that whoever knows the id can
find the receipt, and nobody can derive the id from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`sentence` states what was found and, for `warn` and `fail`, what to do about it."""

    level: Level
    name: str
    sentence: str

    @property
    def line(self) -> str:
        return f"{self.level.value:<4}  {self.name:<13}  {self.sentence}"


def ok(name: str, sentence: str) -> Finding:
    return Finding(Level.OK, name, sentence)


def warn(name: str, sentence: str) -> Finding:
    return Finding(Level.WARN, name, sentence)


def fail(name: str, sentence: str) -> Finding:
    return Finding(Level.FAIL, name, sentence)


SLOW_MS = 10_000


def answered(name: str, time_ms: float) -> Finding:
    """A model's finding: a warning if its users wait long."""
    if time_ms < SLOW_MS:
        return ok(name, f"answered in {time_ms:.0f} ms")
    slow = f"slow: answered in {time_ms / 1_000:.0f} s; questions wait TOKEN_TIMEOUT_S for each token"
    return warn(name, slow)


def exit_code(findings: list[Finding]) -> int:
    """Return 0 without failures (warnings allowed), else 1."""
    return int(any(finding.level is Level.FAIL for finding in findings))


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
    """Times are UTC microseconds, sizes bytes on disk (None: the engine does not report them).

    `reason` says who asked: "schedule", "request" or "command". `counts` are numbers by what was counted;
    `details` short plain words such as the cutoff. `error` is empty if it was completed.
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
    """Return the fingerprint of an id; `kind` is what it names: turn, session, document or owner."""
    return hashlib.sha256(f"{kind}:{name}".encode()).hexdigest()
