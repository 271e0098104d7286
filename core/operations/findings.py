"""What the doctor finds: one plain line for each thing that was looked at.

No sentence holds a key, a text, a title or an owner: what it says may be sent to anybody who helps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`sentence` says what is there, and for `warn` and `fail` what to do about it."""

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


def exit_code(findings: list[Finding]) -> int:
    """0 when all is well or only warned of, 1 when something fails."""
    return int(any(finding.level is Level.FAIL for finding in findings))
