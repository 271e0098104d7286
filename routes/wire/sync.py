"""The sync of followed folders, as its operator sees it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.conversation.turns import rfc3339
from core.operations import sync as domain
from routes.wire.fields import Moment, Reply, example


class SyncBody(BaseModel):
    """Which source (absent: all), and whether documents go also where most of the files are gone."""

    model_config = ConfigDict(extra="forbid", strict=True, **example({"source": "notes"}))

    source: str | None = Field(None, min_length=1, max_length=64, description="Absent: all.")
    allow_removals: bool = Field(False, description="Remove documents also where most files are missing.")


class SyncFailure(Reply):
    """A file that could not be read in."""

    path: str = Field(description="Below the source's folder.")
    reason: str = Field(description="Why, in one sentence.")
    since: Moment = Field(description="When a run first met it.")


class KindCount(Reply):
    """A kind of files that cannot be read in at all."""

    ending: str = Field(description='The ending of their names; "" for none.')
    count: int = Field(description="How many there are.")


class SyncReport(Reply):
    """One run over one source."""

    source: str = Field(description="Its name.")
    added: int = Field(description="Documents added.")
    changed: int = Field(description="Documents read in anew.")
    removed: int = Field(description="Documents removed.")
    unchanged: int = Field(description="Documents that stayed.")
    failed: int = Field(description="Files that cannot be read as they are.")
    failures: list[SyncFailure] = Field(description="The first 1,000 of them.")
    skipped: list[KindCount] = Field(description="Kinds of files that cannot be read at all.")
    held_back: int = Field(description="Documents that were not removed, because too many would be.")
    changing: int = Field(description="Files that were being written.")
    not_reached: int = Field(description="Files that were left to the next run.")
    problem: str = Field(description='Why the folder could not be followed; "" when it could.')
    stopped: str = Field(description='Why files were left; "" when none were.')
    cancelled: bool = Field(description="true: a shutdown ended it.")
    began_at: Moment = Field(description="When it began.")
    ended_at: Moment = Field(description="When it ended.")

    @classmethod
    def of(cls, report: domain.SyncReport) -> SyncReport:
        body = asdict(report)
        began_us, ended_us = body.pop("began_us"), body.pop("ended_us")
        body["failures"] = [
            SyncFailure(path=each.path, reason=each.reason, since=rfc3339(each.since_us))
            for each in report.failures
        ]
        return cls(**body, began_at=rfc3339(began_us), ended_at=rfc3339(ended_us))


class SyncProgress(Reply):
    """How far a running sync is."""

    source: str = Field(description="The source it is at.")
    step: Literal["looking", "reading", "removing"] = Field(description="What it does.")
    done: int = Field(description="Files read in, or documents removed.")
    total: int = Field(description="How many there are.")


class SourceState(Reply):
    """A configured source."""

    source: str = Field(description="Its name.")
    folder: str = Field(description="The folder.")
    owner: str = Field(description="Whose its documents are.")
    tags: list[str] = Field(description="What its documents are tagged with.")
    last: SyncReport | None = Field(description="Its last run; null: none yet.")


class UnconfiguredSource(Reply):
    """A source that is configured no longer."""

    source: str = Field(description="Its name.")
    documents: int = Field(description="How many of its documents are still stored.")
    message: str = Field(description="The same in one sentence, and what removes them.")


class SyncState(Reply):
    """How the sync of folders stands."""

    model_config = example(
        {
            "running": True,
            "began_at": "2026-01-31T03:00:00.000000Z",
            "progress": {"source": "notes", "step": "reading", "done": 3, "total": 12},
            "sources": [{"source": "notes", "folder": "/notes", "owner": "", "tags": [], "last": None}],
            "left": [],
        }
    )

    running: bool = Field(description="Whether one runs now.")
    began_at: Moment | None = Field(description="When the running one began.")
    progress: SyncProgress | None = Field(description="How far it is.")
    sources: list[SourceState] = Field(description="Every configured source.")
    left: list[UnconfiguredSource] = Field(description="Sources that are configured no longer.")

    @classmethod
    def of(cls, state: domain.SyncState) -> SyncState:
        sources = [
            SourceState(
                source=each.source,
                folder=each.folder,
                owner=each.owner,
                tags=list(each.tags),
                last=SyncReport.of(each.last) if each.last else None,
            )
            for each in state.sources
        ]
        return cls(
            running=state.running,
            began_at=rfc3339(state.began_us) if state.began_us else None,
            progress=SyncProgress(**asdict(state.progress)) if state.progress else None,
            sources=sources,
            left=[UnconfiguredSource(**asdict(left), message=str(left)) for left in state.left],
        )


class RemovedSource(Reply):
    """A source whose documents were removed."""

    model_config = example({"source": "notes", "removed": 12})

    source: str = Field(description="Its name.")
    removed: int = Field(description="How many documents it had.")
