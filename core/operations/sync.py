"""What a sync of followed folders is doing and has done, for operators and readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.text import counted


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many files have an unsupported extension; "" for files without one."""

    ending: str
    count: int


@dataclass(frozen=True, slots=True)
class SyncFailure:
    """`path` is relative to the source's folder; `since_us` is its first report, in UTC microseconds."""

    path: str
    reason: str
    since_us: int


@dataclass(frozen=True, slots=True)
class SyncReport:
    """One run over one source. Times are UTC microseconds.

    `failed` files cannot be read as they are; `failures` names at most 1,000 of them. `changing` files were
    being written, and `not_reached` were left for the reason in `stopped`; the next run takes up both.
    `skipped` are unsupported kinds of files. `problem` is a plain sentence if the folder could not be
    followed, or if `held_back` documents were not removed. `cancelled`: a shutdown ended the run early.
    """

    source: str
    began_us: int
    ended_us: int
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    failed: int = 0
    failures: tuple[SyncFailure, ...] = ()
    skipped: tuple[KindCount, ...] = ()
    held_back: int = 0
    changing: int = 0
    not_reached: int = 0
    problem: str = ""
    stopped: str = ""
    cancelled: bool = False

    @property
    def is_fine(self) -> bool:
        return not (self.failed or self.held_back or self.not_reached or self.problem or self.cancelled)


def skipped_words(skipped: Sequence[KindCount]) -> str:
    """Return, for example, "12 files of kinds that cannot be read: .exe ×10, .mp4 ×2"; "" if none."""
    if not skipped:
        return ""
    total = sum(kind.count for kind in skipped)
    shown = ", ".join(f"{kind.ending or 'no ending'} ×{kind.count}" for kind in skipped)
    files, kinds = ("file", "a kind") if total == 1 else ("files", "kinds")
    return f"{total} {files} of {kinds} that cannot be read: {shown}"


class SyncStep(StrEnum):
    LOOKING = "looking"
    READING = "reading"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """Progress on the current source; `done` of `total` files are ingested, or documents removed."""

    source: str
    step: SyncStep
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class SourceState:
    """A configured source; `last` is None before its first run."""

    source: str
    folder: str
    owner: str
    tags: tuple[str, ...]
    last: SyncReport | None


@dataclass(frozen=True, slots=True)
class LeftSource:
    """A source that is no longer configured, and how many of its documents remain."""

    source: str
    documents: int

    @property
    def message(self) -> str:
        return (
            f"source {self.source} is no longer configured: {counted(self.documents, 'document')} left; "
            f"wenmai sync --forget {self.source} deletes what is left"
        )


@dataclass(frozen=True, slots=True)
class SyncState:
    """`began_us` is when the current run began, 0 without one."""

    running: bool
    began_us: int
    progress: SyncProgress | None
    sources: tuple[SourceState, ...]
    left: tuple[LeftSource, ...]


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a reader may know about a source; `synced_us` is 0 before its first run."""

    source: str
    documents: int
    synced_us: int
