"""Folder sync: keeps documents in line with the configured folders, one run at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from config.settings import StoreSettings
from config.tables import SourceSettings
from core.errors import (
    BadRequestError,
    ShuttingDownError,
    StillRunningError,
    StoreUnavailableError,
    UnavailableError,
    WenmaiError,
)
from core.knowledge import SHARED_OWNER
from core.operations.sync import SourceState, SourceSummary, SyncProgress, SyncReport, SyncState
from services.store.clock import utc_now_us
from services.store.dialect import VectorStore
from services.store.durable import try_lock
from services.sync.intake import Origin, SyncedKnowledge, SyncPace
from services.sync.plan import ExpectedDocument
from services.sync.reports import SourceCounts, SyncReports, Tally
from services.sync.run import SourceRun
from services.sync.scanner import FolderScanner

LOCK_NAME = "sync.lock"
log = structlog.get_logger()


class SyncLock:
    """One sync at a time among all processes that share a data folder: a file lock, which the system releases
    however its process ends."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting. Raises StillRunningError with its holder, UnavailableError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UnavailableError(f"{LOCK_NAME} cannot be written: {error.strerror}.") from error
        if not try_lock(descriptor):
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StillRunningError(f"The folders are being synced by another process ({holder}).")
        os.ftruncate(descriptor, 0)
        began = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(descriptor, f"process {os.getpid()}, since {began}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


class UnknownSourceError(BadRequestError):
    code = "unknown_source"


class FolderSync:
    """One run at a time in this process, and among all that share the data folder."""

    def __init__(
        self,
        knowledge: SyncedKnowledge,
        sources: Mapping[str, SourceSettings],
        store: VectorStore,
        names: StoreSettings,
        *,
        max_file_bytes: int,
        pace: SyncPace | None = None,
    ) -> None:
        """Raises StartRefusedError if a pattern is invalid."""
        self._knowledge = knowledge
        self._sources = sources
        self._scanners = {
            name: FolderScanner(name, source, max_file_bytes) for name, source in sources.items()
        }
        self._origins = {
            name: Origin(name, source.folder, _expected(source)) for name, source in sources.items()
        }
        self._counts = SourceCounts(store, names.document_collection)
        self._reports = SyncReports(store, names.operations_collection)
        self._lock = SyncLock(names.data_dir)
        self._pace = pace or SyncPace()
        self._began_us = 0
        self._progress: SyncProgress | None = None
        self._task: asyncio.Task[Any] | None = None
        self._closed = False

    async def run(self, source: str | None = None, allow_removals: bool = False) -> list[SyncReport]:
        """Sync one source, or all, one after the other. Failures are in the reports.

        Raises UnknownSourceError, StillRunningError during another run, ShuttingDownError.
        """
        names = self._chosen(source)
        self._begin()
        self._task = asyncio.current_task()
        try:
            return await self._run_all(names, allow_removals)
        finally:
            self._end()

    async def start(self, source: str | None = None, allow_removals: bool = False) -> SyncState:
        """Begin a run in the background. Raises as `run` does."""
        names = self._chosen(source)
        self._begin()
        task = asyncio.create_task(self._run_all(names, allow_removals), name="sync")
        self._task = task
        task.add_done_callback(self._on_started_end)
        return await self.state()

    async def state(self) -> SyncState:
        """Return all sources in the configured order; without stored facts while the store is unavailable."""
        try:
            last, left = await self._reports.last(self._sources), await self._counts.left(self._sources)
        except StoreUnavailableError as error:
            log.debug("sync_state_unknown", error=str(error))
            last, left = {}, []
        states = [
            SourceState(name, str(each.folder), each.expected.owner, each.expected.tags, last.get(name))
            for name, each in self._origins.items()
        ]
        return SyncState(bool(self._began_us), self._began_us, self._progress, tuple(states), tuple(left))

    async def last_reports(self) -> list[SyncReport]:
        """Return the last report of each source that has had one. Raises StoreUnavailableError."""
        return list((await self._reports.last(self._sources)).values())

    async def summaries(self, owners: Sequence[str]) -> list[SourceSummary]:
        """Summarize the sources whose documents these owners may read. Raises StoreUnavailableError."""
        names = [name for name, each in self._origins.items() if each.expected.owner in owners]
        last = await self._reports.last(names)
        return [
            SourceSummary(
                name,
                await self._counts.ready(name, self._origins[name].expected.owner),
                last[name].ended_us if name in last else 0,
            )
            for name in names
        ]

    async def forget(self, source: str) -> int:
        """Remove the documents of a source that is no longer configured. Returns how many.

        Raises BadRequestError if it is configured or has none, StillRunningError, StoreUnavailableError.
        """
        if source in self._sources:
            raise BadRequestError(
                f"source: {source} is configured, so its documents would come back: remove it from the "
                "configuration first."
            )
        self._begin()
        self._task = asyncio.current_task()
        try:
            documents = [document async for document in self._knowledge.of_source(source)]
            if not documents:
                raise BadRequestError(f"source: there are no documents of {source!r}.")
            for document in documents:
                await self._knowledge.erase(document.document_id)
            await self._reports.forget(source)
        finally:
            self._end()
        log.info("source_forgotten", source=source, documents=len(documents))
        return len(documents)

    async def close(self) -> None:
        """Stop a run between two files; nothing is left half done."""
        self._closed = True
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def _chosen(self, source: str | None) -> list[str]:
        if source is None:
            return list(self._sources)
        if source not in self._sources:
            known = ", ".join(self._sources) or "none"
            raise UnknownSourceError(f"source: no source of this name is configured; configured: {known}.")
        return [source]

    def _begin(self) -> None:
        if self._closed:
            raise ShuttingDownError("The server is shutting down.")
        if self._began_us:
            raise StillRunningError("A sync is running: GET /admin/sync shows its progress.")
        self._began_us = utc_now_us()  # before any await, so that only one of two callers gets here
        try:
            self._lock.acquire()
        except WenmaiError:
            self._end()
            raise

    def _end(self) -> None:
        self._lock.release()
        self._began_us = 0
        self._progress = self._task = None

    def _on_started_end(self, task: asyncio.Task[list[SyncReport]]) -> None:
        self._end()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sync_failed", exc_info=error)

    async def _run_all(self, names: Sequence[str], allow_removals: bool) -> list[SyncReport]:
        return [await self._run_one(name, allow_removals) for name in names]

    async def _run_one(self, name: str, allow_removals: bool) -> SyncReport:
        tally = Tally(name, utc_now_us(), await self._last(name))
        run = SourceRun(
            self._knowledge, self._scanners[name], self._origins[name], tally, self._pace, self._set_progress,
            allow_removals=allow_removals,
        )  # fmt: skip
        try:
            await run.run()
        except asyncio.CancelledError:
            self._reports.note(tally.report(utc_now_us(), cancelled=True))
            raise
        report = tally.report(utc_now_us())
        await self._save(report)
        _log(report)
        return report

    def _set_progress(self, progress: SyncProgress) -> None:
        self._progress = progress

    async def _last(self, name: str) -> SyncReport | None:
        try:
            return (await self._reports.last([name])).get(name)
        except StoreUnavailableError:
            return None

    async def _save(self, report: SyncReport) -> None:
        try:
            await self._reports.save(report)
        except StoreUnavailableError as error:
            log.warning("sync_report_not_stored", source=report.source, error=str(error))


def _expected(source: SourceSettings) -> ExpectedDocument:
    """Return what the source's documents should be like, its tags stripped as in a document. A source without
    an owner is everybody's."""
    tags = dict.fromkeys(tag.strip() for tag in source.tags if tag.strip())
    return ExpectedDocument(source.owner or SHARED_OWNER, tuple(tags))


def _log(report: SyncReport) -> None:
    log.info(
        "sync_finished", source=report.source, added=report.added, changed=report.changed,
        removed=report.removed, unchanged=report.unchanged, failed=report.failed,
        held_back=report.held_back, not_reached=report.not_reached,
    )  # fmt: skip
    if report.problem:
        log.warning("sync_problem", source=report.source, problem=report.problem)
