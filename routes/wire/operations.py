"""Administrative operations: clean-up, receipts, backups, repair, re-embedding, and the sync of followed
folders."""

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
    "memories_matched": 0,
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
    """What expired or, in a dry run, would expire."""

    model_config = example(_EXPIRY)

    cutoff: str = Field(description="Turns before this time expire.")
    days: int = Field(description="The age limit in days.")
    dry_run: bool = Field(description="true: nothing was changed.")
    total_before: int = Field(description="Turns before the clean-up.")
    matched: int = Field(description="Turns past the age limit.")
    deleted: int = Field(description="Turns that were deleted; 0 in a dry run.")
    sessions: dict[str, int] = Field(description="Turns past the age limit, by session.")
    total_after: int = Field(description="Turns after the clean-up.")
    unparsable: int = Field(description="Turns without a readable time; they are kept.")
    held: int = Field(description="Old turns of sessions on hold; they are kept.")
    sessions_removed: int = Field(description="Sessions removed because no turn was left.")
    unparsable_ids: list[str] = Field(description="The first of the turns without a readable time.")
    memories_matched: int = Field(description="Memories neither learned nor used for MEMORY_EXPIRE_DAYS.")
    memories_removed: int = Field(description="Memories removed: those, and any that expire with their turn.")
    summaries_removed: int = Field(description="Summaries derived from these turns.")
    bytes_before: int | None = Field(description="Size on disk before; null: not reported by the engine.")
    bytes_after: int | None = Field(description="Size on disk after.")
    receipt_id: str = Field(description='The stored receipt; "" in a dry run.')
    refusal: str = Field(description='Why the nightly run would not do it; "" if it would.')


class CleanupSchedule(Reply):
    """When the clean-up runs next, and how the last run went."""

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

    cron: str = Field(description="The schedule, as a cron expression.")
    timezone: str = Field(description="The time zone of the schedule.")
    next_run: str | None = Field(description="When the clean-up runs next; null: never again.")
    last_run: str | None = Field(description="When the last run ended; null: there was none.")
    last_result: Cleanup | None = Field(description="The result of the last run.")
    last_error: str | None = Field(description="The error that ended the last run, or why it was refused.")
    last_slot: str | None = Field(description="The newest scheduled time that was carried out.")
    skipped: str | None = Field(description="Why a later run was skipped.")
    running: bool = Field(description="Whether a clean-up is running.")
    holder: str | None = Field(description="The worker that is running it.")


class Receipt(Reply):
    """An operation on everybody's data; never contains texts or ids."""

    receipt_id: str = Field(description="The receipt's id.")
    kind: ReceiptKind = Field(description="What was done.")
    reason: str = Field(description="Who asked: schedule, request or command.")
    counts: dict[str, int] = Field(description="How many items were affected, by kind.")
    bytes_before: int | None = Field(description="Size on disk before; null: not reported by the engine.")
    bytes_after: int | None = Field(description="Size on disk after.")
    subject: str = Field(description="SHA-256 of the erased item's id.")
    details: dict[str, str] = Field(description="Further details, such as the cutoff.")
    error: str = Field(description='Why the operation ended early; "" if it was completed.')
    began_at: Moment = Field(description="When the operation began.")
    ended_at: Moment = Field(description="When the operation ended.")


class ReceiptPage(Reply):
    """A page of receipts."""

    model_config = example({"receipts": [], "next": None})

    receipts: list[Receipt] = Field(description="The receipts, newest first.")
    next: int | None = Field(description="`before` of the next page; null: this is the last one.")


class Backup(Reply):
    """A new archive."""

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

    file: str = Field(description="The archive's file name in BACKUP_DIR.")
    size_bytes: int = Field(description="The archive's size in bytes.")
    sha256: str = Field(description="SHA-256 of the archive, in hex.")
    created: str = Field(description="The moment that the archive captures.")
    engine: str = Field(description="The store's engine: embedded or server.")
    points: dict[str, int] = Field(description="The number of points in the archive, by kind.")
    seconds: float = Field(description="How many seconds the backup took.")
    removed: list[str] = Field(description="Older archives that were deleted.")
    fuller: list[str] = Field([], description="Deleted archives that contained more than this one.")


class Archive(Reply):
    """An archive in BACKUP_DIR."""

    file: str = Field(description="The archive's file name.")
    size_bytes: int = Field(description="The archive's size in bytes.")
    created: str = Field(description="The moment that the archive captures.")
    points: dict[str, int] = Field(description="The number of points in the archive, by kind.")
    problem: str = Field(description='Why it cannot be used; "" if its contents and manifest are sound.')


class ArchiveList(Reply):
    """The archives in BACKUP_DIR."""

    model_config = example({"backups": []})

    backups: list[Archive] = Field(description="The archives, newest first.")


class Repair(Reply):
    """What a repair did or, in a dry run, would do."""

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
    sessions: int = Field(description="Sessions examined.")
    turns: int = Field(description="Turns examined.")
    changed: int = Field(description="Turns to change.")
    rehomed: int = Field(description="Turns among them that move to their turn id.")
    leftovers: int = Field(description="Copies left by an interrupted run.")
    unparsable: int = Field(description="Turns without a readable time; they are kept.")
    duplicates: int = Field(description="Turns that shared an id; they are kept.")
    unreadable: int = Field(description="Points without a session; they are left alone.")
    unlisted: int = Field(description="Sessions whose id is not a UUID.")
    sessions_created: int = Field(description="Session records to create.")
    deleted: int = Field(alias="gone", description="Turns that were deleted in the meantime.")
    repairs: dict[str, int] = Field(description="Turns by changed field.")
    troubles: dict[str, int] = Field(description="Turns or sessions, by problem.")
    dropped: int = Field(description="Duplicate turns to delete.")
    skipped: int = Field(description="Turns that changed in the meantime; left to the next run.")
    lacking: int = Field(description="Turns without vectors.")
    embedded: int = Field(description="Turns among them that were embedded.")
    foreign_vectors: bool = Field(description="true: the vectors are from another embedding.")
    documents: int = Field(description="Documents marked ready that were not searchable.")
    backup: str = Field(description='The archive of the store, written first; "" in a dry run.')
    plan: dict[str, Any] | None = Field(description="With `details`: every finding and every change.")


class CollectionImport(Reply):
    """What was copied from an old collection or, in a dry run, would be."""

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
    source: str = Field(description="The name of the old collection.")
    sessions: int = Field(description="The number of sessions in it.")
    turns: int = Field(description="Turns that can be copied.")
    existing: int = Field(alias="there", description="Turns among them that are already stored.")
    unreadable: int = Field(description="Points without a session or a question.")
    left_out: int = Field(description="Copies and duplicates, not copied.")
    added: int = Field(description="Turns copied.")
    embedded: int = Field(description="Turns among them that were embedded.")
    sessions_created: int = Field(description="Session records to create.")
    troubles: dict[str, int] = Field(description="Problems repaired while copying, by kind.")
    backup: str = Field(description='The archive of the store, written first; "" in a dry run.')


class ReembedBody(BaseModel):
    """EMBEDDING of the next start; its other settings are the server's own."""

    model_config = ConfigDict(extra="forbid", strict=True, **example({"embedding": "bundled"}))

    embedding: str = Field(min_length=1, max_length=500, description="The embedding, as EMBEDDING names it.")


class StoredCollection(Reply):
    """One collection of the store."""

    name: str = Field(description="The collection's name.")
    points: int = Field(description="The number of points.")
    embedding: str = Field(description='The embedding of its vectors; "" if it has none.')
    fits: bool = Field(description="Whether the collection already has the requested embedding.")


class ReembedPlan(Reply):
    """What remains to be embedded."""

    model_config = example(
        {
            "collections": [{"name": "turns", "points": 240, "embedding": "hashing", "fits": False}],
            "seconds": 3.2,
            "needed": True,
            "points": 240,
        }
    )

    collections: list[StoredCollection] = Field(description="Every collection.")
    seconds: float = Field(description="The estimated duration; 0 if there is nothing to do.")
    needed: bool = Field(description="Whether there is anything to do.")
    points: int = Field(description="The total number of points.")


class ReembedState(Reply):
    """The progress of a re-embedding."""

    model_config = example(_REEMBEDDING)

    status: Literal["idle", "running", "prepared", "failed", "cancelled", "interrupted"] = Field(
        description="The state; prepared: the next start configured with this embedding uses the new "
        "vectors; interrupted: by the end of the server, and the next POST continues."
    )
    embedding: str = Field(description="The new embedding.")
    dimension: int = Field(description="The dimension of its vectors.")
    round: int = Field(description="Round 1 embeds everything, later rounds what was written meanwhile.")
    done: int = Field(description="Points compared in this round.")
    total: int = Field(description="Points in total.")
    embedded: int = Field(description="Points embedded in this round.")
    began_us: int = Field(description="When the re-embedding began, in UTC microseconds; 0: not yet.")
    ended_us: int = Field(description="When the re-embedding ended; 0: not yet.")
    error: str = Field(description='Why the re-embedding failed or is interrupted; "" if it is not.')


class SyncBody(BaseModel):
    """Which source to sync, and whether to remove documents even if most files are missing."""

    model_config = ConfigDict(extra="forbid", strict=True, **example({"source": "notes"}))

    source: str | None = Field(None, min_length=1, max_length=64, description="The source; absent: all.")
    allow_removals: bool = Field(False, description="Remove documents even if most files are missing.")


class SyncFailure(Reply):
    """A file that could not be ingested."""

    path: str = Field(description="The path relative to the source's folder.")
    reason: str = Field(description="Why it failed, in one sentence.")
    since: Moment = Field(
        validation_alias=AliasChoices("since", "since_us"), description="When a run first failed on it."
    )


class KindCount(Reply):
    """A kind of file that cannot be ingested."""

    ending: str = Field(description='The file extension; "" for none.')
    count: int = Field(description="The number of such files.")


class SyncReport(Reply):
    """One sync of one source."""

    source: str = Field(description="The source's name.")
    added: int = Field(description="Documents added.")
    changed: int = Field(description="Documents ingested again.")
    removed: int = Field(description="Documents removed.")
    unchanged: int = Field(description="Documents unchanged.")
    failed: int = Field(description="Files that cannot be read as they are.")
    failures: list[SyncFailure] = Field(description="The first 1,000 failures.")
    skipped: list[KindCount] = Field(description="Kinds of files that cannot be ingested.")
    held_back: int = Field(description="Documents not removed because too many would have been.")
    changing: int = Field(description="Files being written at the time.")
    not_reached: int = Field(description="Files left to the next run.")
    problem: str = Field(description='Why the folder could not be synced; "" if it could.')
    stopped: str = Field(description='Why files were left; "" if none were.')
    cancelled: bool = Field(description="true: a shutdown ended the sync.")
    began_at: Moment = Field(description="When the sync began.")
    ended_at: Moment = Field(description="When the sync ended.")


class SyncProgress(Reply):
    """The progress of a running sync."""

    source: str = Field(description="The source being synced.")
    step: Literal["looking", "reading", "removing"] = Field(description="The current step.")
    done: int = Field(description="Files ingested, or documents removed, so far.")
    total: int = Field(description="Files to ingest, or documents to remove, in total.")


class SourceState(Reply):
    """A configured source."""

    source: str = Field(description="The source's name.")
    folder: str = Field(description="The path of the folder.")
    owner: str = Field(description="The owner of the source's documents.")
    tags: list[str] = Field(description="The tags of the source's documents.")
    last: SyncReport | None = Field(description="The source's last sync; null: none yet.")


class UnconfiguredSource(Reply):
    """A source that is no longer configured."""

    source: str = Field(description="The source's name.")
    documents: int = Field(description="How many of the source's documents are still stored.")
    message: str = Field(description="What is left, and how to remove it, in one sentence.")


class SyncState(Reply):
    """The state of folder sync."""

    model_config = example(
        {
            "running": True,
            "began_at": "2026-01-31T03:00:00.000000Z",
            "progress": {"source": "notes", "step": "reading", "done": 3, "total": 12},
            "sources": [{"source": "notes", "folder": "/notes", "owner": "", "tags": [], "last": None}],
            "left": [],
        }
    )

    running: bool = Field(description="Whether a sync is running.")
    began_at: MaybeMoment = Field(description="When the running sync began.")
    progress: SyncProgress | None = Field(description="The progress of the running sync.")
    sources: list[SourceState] = Field(description="Every configured source.")
    left: list[UnconfiguredSource] = Field(description="Sources no longer configured that left documents.")


class RemovedSource(Reply):
    """A source whose documents were removed."""

    model_config = example({"source": "notes", "removed": 12})

    source: str = Field(description="The source's name.")
    removed: int = Field(description="How many documents were removed.")
