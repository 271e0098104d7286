"""What operators ask for: clean-up, receipts, backups, repair, re-embedding, and the sync of
followed folders."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from core.operations.reports import ReceiptKind
from routes.wire.fields import MaybeMoment, Moment, Reply, example

_EXPIRY = {
    "cutoff": "2025-08-04T03:00:00.000000Z",
    "days": 180,
    "dry_run": True,
    "total_before": 240,
    "matched": 12,
    "deleted": 0,
    "sessions": {},
    "total_after": 240,
    "unparsable": 0,
    "held": 0,
    "sessions_removed": 0,
    "unparsable_ids": [],
    "memories_removed": 0,
    "summaries_removed": 0,
    "bytes_before": None,
    "bytes_after": None,
    "receipt_id": "",
    "refusal": "",
}
_REEMBEDDING = {
    "status": "running",
    "embedding": "bundled",
    "dimension": 384,
    "round": 1,
    "done": 320,
    "total": 2400,
    "embedded": 320,
    "began_us": 1769850000000000,
    "ended_us": 0,
    "error": "",
}


class Cleanup(Reply):
    """What expired; in a dry run what would."""

    model_config = example(_EXPIRY)

    cutoff: str = Field(description="Turns before this time expire.")
    days: int = Field(description="The age limit in days.")
    dry_run: bool = Field(description="true: nothing was changed.")
    total_before: int = Field(description="Turns there were.")
    matched: int = Field(description="Turns that are too old.")
    deleted: int = Field(description="Turns that were deleted; 0 in a dry run.")
    sessions: dict[str, int] = Field(description="Those that are too old, by session.")
    total_after: int = Field(description="Turns there are now.")
    unparsable: int = Field(description="Turns without a readable time; they are kept.")
    held: int = Field(description="Old turns of sessions on hold; they are kept.")
    sessions_removed: int = Field(description="Sessions that had no turn left.")
    unparsable_ids: list[str] = Field(description="The first of the turns without a readable time.")
    memories_removed: int = Field(description="Memories that were made of them.")
    summaries_removed: int = Field(description="Summaries that were made of them.")
    bytes_before: int | None = Field(description="Size on the disk before; null: the engine does not say.")
    bytes_after: int | None = Field(description="Size on the disk after.")
    receipt_id: str = Field(description='The receipt that is kept of it; "" in a dry run.')
    refusal: str = Field(description='Why the nightly run would not do it; "" when it would.')


class CleanupSchedule(Reply):
    """When the clean-up runs next, and how it went last."""

    model_config = example(
        {
            "cron": "0 3 * * *",
            "timezone": "UTC",
            "next_run": "2026-02-01T03:00:00.000000Z",
            "last_run": None,
            "last_result": None,
            "last_error": None,
            "last_slot": None,
            "skipped": None,
            "running": False,
            "holder": None,
        }
    )

    cron: str = Field(description="When it runs, as cron writes it.")
    timezone: str = Field(description="The zone that cron's times are in.")
    next_run: str | None = Field(description="When it runs next; null: never again.")
    last_run: str | None = Field(description="When its last run ended; null: it has not run yet.")
    last_result: Cleanup | None = Field(description="What it did.")
    last_error: str | None = Field(description="The kind of error that it ended with, or why it was refused.")
    last_slot: str | None = Field(description="The newest time of the schedule that is done.")
    skipped: str | None = Field(description="Why a later one was not run.")
    running: bool = Field(description="Whether it runs now.")
    holder: str | None = Field(description="The worker that runs it.")


class Receipt(Reply):
    """What was done to everybody's data; never a text or an id."""

    receipt_id: str = Field(description="Its id.")
    kind: ReceiptKind = Field(description="What was done.")
    reason: str = Field(description="Who asked: schedule, request or command.")
    counts: dict[str, int] = Field(description="How much, by what was counted.")
    bytes_before: int | None = Field(description="Size on the disk before; null: the engine does not say.")
    bytes_after: int | None = Field(description="Size on the disk after.")
    subject: str = Field(description="SHA-256 of the id of what was erased.")
    details: dict[str, str] = Field(description="Short plain words, such as the cutoff.")
    error: str = Field(description='Why it ended early; "" when it was done.')
    began_at: Moment = Field(description="When it began.")
    ended_at: Moment = Field(description="When it ended.")


class ReceiptPage(Reply):
    """A page of receipts."""

    model_config = example({"receipts": [], "next": None})

    receipts: list[Receipt] = Field(description="Newest first.")
    next: int | None = Field(description="`before` of the next page; null: this is the last one.")


class Backup(Reply):
    """An archive that was written."""

    model_config = example(
        {
            "file": "wenmai-20260131T093000.000Z.wenmai.zip",
            "size_bytes": 1048576,
            "sha256": "9f2c0d6b",
            "created": "2026-01-31T09:30:00.000000Z",
            "engine": "embedded",
            "points": {"turns": 240},
            "seconds": 2.4,
            "removed": [],
            "fuller": [],
        }
    )

    file: str = Field(description="Its name, below BACKUP_DIR.")
    size_bytes: int = Field(description="Its size.")
    sha256: str = Field(description="The file's fingerprint, in hex.")
    created: str = Field(description="The moment that it shows.")
    engine: str = Field(description="embedded or server.")
    points: dict[str, int] = Field(description="What is in it, by kind.")
    seconds: float = Field(description="How long it took.")
    removed: list[str] = Field(description="Older archives that were deleted.")
    fuller: list[str] = Field([], description="Those of them that held more than this one.")


class Archive(Reply):
    """An archive in BACKUP_DIR."""

    file: str = Field(description="Its name.")
    size_bytes: int = Field(description="Its size.")
    created: str = Field(description="The moment that it shows.")
    points: dict[str, int] = Field(description="What is in it, by kind.")
    problem: str = Field(description='Why it cannot be used; "" when contents and manifest are sound.')


class ArchiveList(Reply):
    """The archives in BACKUP_DIR."""

    model_config = example({"backups": []})

    backups: list[Archive] = Field(description="Newest first.")


class Repair(Reply):
    """What a repair did; in a dry run what it would do."""

    model_config = example(
        {
            "dry_run": True,
            "sessions": 30,
            "turns": 240,
            "changed": 2,
            "rehomed": 0,
            "leftovers": 0,
            "unparsable": 0,
            "duplicates": 0,
            "unreadable": 0,
            "unlisted": 0,
            "sessions_created": 1,
            "gone": 0,
            "repairs": {"parent_turn_id": 2},
            "troubles": {"missing_parent": 2},
            "dropped": 0,
            "skipped": 0,
            "lacking": 0,
            "embedded": 0,
            "foreign_vectors": False,
            "documents": 0,
            "backup": "",
            "plan": None,
        }
    )

    dry_run: bool = Field(description="true: nothing was changed.")
    sessions: int = Field(description="Sessions that were looked at.")
    turns: int = Field(description="Turns that were looked at.")
    changed: int = Field(description="Turns to change.")
    rehomed: int = Field(description="Those of them that move to their turn id.")
    leftovers: int = Field(description="Copies left by a run that was cut.")
    unparsable: int = Field(description="Turns without a readable time; they are kept.")
    duplicates: int = Field(description="Turns that shared an id; they are kept.")
    unreadable: int = Field(description="Points without a session; they are left alone.")
    unlisted: int = Field(description="Sessions whose id is no UUID.")
    sessions_created: int = Field(description="Session records to make.")
    deleted: int = Field(alias="gone", description="Turns that were deleted in the meantime.")
    repairs: dict[str, int] = Field(description="Turns by the field that changes.")
    troubles: dict[str, int] = Field(description="Turns, or sessions, by the trouble that was met.")
    dropped: int = Field(description="Duplicate turns to delete.")
    skipped: int = Field(description="Turns that changed in the meantime; the next run takes them up.")
    lacking: int = Field(description="Turns without vectors.")
    embedded: int = Field(description="Those of them that got vectors.")
    foreign_vectors: bool = Field(description="true: the vectors are another embedding's.")
    documents: int = Field(description="Documents that said ready and were not searched.")
    backup: str = Field(description='The archive written first, with the store as it was; "" in a dry run.')
    plan: dict[str, Any] | None = Field(description="With `details`: every finding and every change.")


class CollectionImport(Reply):
    """What was copied from an old collection; in a dry run what would be."""

    model_config = example(
        {
            "dry_run": True,
            "source": "old_turns",
            "sessions": 3,
            "turns": 24,
            "there": 0,
            "unreadable": 0,
            "left_out": 0,
            "added": 0,
            "embedded": 0,
            "sessions_created": 3,
            "troubles": {},
            "backup": "",
        }
    )

    dry_run: bool = Field(description="true: nothing was changed.")
    source: str = Field(description="The old collection.")
    sessions: int = Field(description="Its sessions.")
    turns: int = Field(description="Turns that can be copied.")
    existing: int = Field(alias="there", description="Those of them that are stored already.")
    unreadable: int = Field(description="Points without a session or a question.")
    left_out: int = Field(description="Copies and duplicates.")
    added: int = Field(description="Turns that were copied.")
    embedded: int = Field(description="Those of them that got vectors.")
    sessions_created: int = Field(description="Session records to make.")
    troubles: dict[str, int] = Field(description="What is repaired on the way, by kind.")
    backup: str = Field(description='The archive written first, with the store as it was; "" in a dry run.')


class ReembedBody(BaseModel):
    """EMBEDDING of the next start; its other settings are the server's own."""

    model_config = ConfigDict(extra="forbid", strict=True, **example({"embedding": "bundled"}))

    embedding: str = Field(min_length=1, max_length=500, description="As EMBEDDING names it.")


class StoredCollection(Reply):
    """One collection of the store."""

    name: str = Field(description="Its name.")
    points: int = Field(description="How many points it has.")
    embedding: str = Field(description='What its vectors are from; "" when it has none.')
    fits: bool = Field(description="Whether that is the embedding that was asked for.")


class ReembedPlan(Reply):
    """What there is to embed."""

    model_config = example(
        {
            "collections": [{"name": "turns", "points": 240, "embedding": "hashing", "fits": False}],
            "seconds": 3.2,
            "needed": True,
            "points": 240,
        }
    )

    collections: list[StoredCollection] = Field(description="Collection by collection.")
    seconds: float = Field(description="An estimate; 0 when there is nothing to do.")
    needed: bool = Field(description="Whether there is anything to do.")
    points: int = Field(description="How many points there are in all.")


class ReembedState(Reply):
    """How far a re-embedding is."""

    model_config = example(_REEMBEDDING)

    status: Literal["idle", "running", "prepared", "failed", "cancelled"] = Field(
        description="prepared: the next start that is configured with the embedding uses it."
    )
    embedding: str = Field(description="The embedding.")
    dimension: int = Field(description="Numbers in a vector.")
    round: int = Field(description="In round 1 all is embedded, later what was written meanwhile.")
    done: int = Field(description="Points compared in this round.")
    total: int = Field(description="Points there are.")
    embedded: int = Field(description="Points that got vectors in this round.")
    began_us: int = Field(description="When it began, in UTC microseconds; 0: not yet.")
    ended_us: int = Field(description="When it ended; 0: not yet.")
    error: str = Field(description='Why it failed; "" when it did not.')


class SyncBody(BaseModel):
    """Which source (absent: all), and whether documents go also where most of the files are gone."""

    model_config = ConfigDict(extra="forbid", strict=True, **example({"source": "notes"}))

    source: str | None = Field(None, min_length=1, max_length=64, description="Absent: all.")
    allow_removals: bool = Field(False, description="Remove documents also where most files are missing.")


class SyncFailure(Reply):
    """A file that could not be read in."""

    path: str = Field(description="Below the source's folder.")
    reason: str = Field(description="Why, in one sentence.")
    since: Moment = Field(
        validation_alias=AliasChoices("since", "since_us"), description="When a run first met it."
    )


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
    began_at: MaybeMoment = Field(description="When the running one began.")
    progress: SyncProgress | None = Field(description="How far it is.")
    sources: list[SourceState] = Field(description="Every configured source.")
    left: list[UnconfiguredSource] = Field(description="Sources that are configured no longer.")


class RemovedSource(Reply):
    """A source whose documents were removed."""

    model_config = example({"source": "notes", "removed": 12})

    source: str = Field(description="Its name.")
    removed: int = Field(description="How many documents it had.")
