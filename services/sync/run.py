"""One sync run of one source: scan its folder, plan, add files, and remove documents of missing files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from core.errors import UnavailableError
from core.knowledge import Document
from core.operations.sync import SyncProgress, SyncStep
from core.text import counted
from services.sync.intake import FileIntake, Origin, Patience, SyncedKnowledge, SyncPace
from services.sync.plan import Plan, make_plan, too_many_missing
from services.sync.reports import Tally
from services.sync.scanner import FolderScanner, Scan, plain, shown_path


class SourceRun:
    """`allow_removals`: remove documents even if most files are gone; `on_progress` receives the progress."""

    def __init__(
        self,
        knowledge: SyncedKnowledge,
        scanner: FolderScanner,
        origin: Origin,
        tally: Tally,
        pace: SyncPace,
        on_progress: Callable[[SyncProgress], None],
        *,
        allow_removals: bool,
    ) -> None:
        self._knowledge = knowledge
        self._scanner = scanner
        self._origin = origin
        self._tally = tally
        self._on_progress = on_progress
        self._allow_removals = allow_removals
        self._patience = Patience(pace.pauses_s)
        self._intake = FileIntake(knowledge, origin, tally, self._patience, pace)
        self._progress = SyncProgress(origin.name, SyncStep.LOOKING)

    async def run(self) -> None:
        """Run the sync; results are in the tally, even if it is cancelled half-way."""
        self._begin_step(SyncStep.LOOKING, 0)
        scan = await self._scanner.scan()
        try:
            documents = await self._patience.call(self._documents)
        except UnavailableError as error:
            self._tally.problem = f"What is stored could not be read: {error}"
            return
        if not self._may_proceed(scan, len(documents)):
            return
        plan = await asyncio.to_thread(make_plan, documents, scan, self._origin.expected)
        self._note(scan, plan)
        early: Sequence[Document] = plan.deleted
        later: Sequence[Document] = plan.moved
        if self._are_too_many(len(early) + len(later), plan):
            early, later = (), (*early, *later)
        await self._remove(early)
        if plan.to_read:
            self._begin_step(SyncStep.READING, len(plan.to_read))
            await self._intake.read_all(plan.to_read, self._advance)
        await self._remove_later(plan, later)
        self._tally.stopped = self._patience.lost

    def _begin_step(self, step: SyncStep, total: int) -> None:
        self._progress = SyncProgress(self._origin.name, step, 0, total)
        self._on_progress(self._progress)

    def _advance(self) -> None:
        self._progress = replace(self._progress, done=self._progress.done + 1)
        self._on_progress(self._progress)

    async def _documents(self) -> list[Document]:
        return [document async for document in self._knowledge.of_source(self._origin.name)]

    def _may_proceed(self, scan: Scan, known: int) -> bool:
        """Whether the scan can be trusted: an unmounted folder must not look like one that was emptied."""
        if scan.problem:
            self._tally.problem = f"{scan.problem}: nothing was read and nothing removed."
        elif scan.is_empty and known and not self._allow_removals:
            self._tally.problem = (
                f"The folder is empty, but had {counted(known, 'document')}: nothing was removed. "
                f"Is its disk mounted? If it is meant to be empty: {self._command}"
            )
            self._tally.held_back = known
        return not self._tally.problem

    @property
    def _command(self) -> str:
        return f"wenmai sync --source {self._origin.name} --yes"

    def _note(self, scan: Scan, plan: Plan) -> None:
        self._tally.skipped = scan.kinds
        self._tally.unchanged = plan.unchanged
        for bad in scan.bad:
            self._tally.fail(bad.path, bad.reason)
        for refused in plan.refused:
            self._tally.fail(shown_path(refused.file.path), plain(refused.reason))

    def _are_too_many(self, lost: int, plan: Plan) -> bool:
        return not self._allow_removals and too_many_missing(lost, plan.known)

    async def _remove_later(self, plan: Plan, lost: Sequence[Document]) -> None:
        """Remove documents after reading new files; those of renamed files are removed in any case."""
        if self._patience.lost:
            self._tally.not_reached += len(lost)
            return
        moved = [document for document in lost if document.content_hash in self._intake.hashes]
        missing = [document for document in lost if document.content_hash not in self._intake.hashes]
        if self._are_too_many(len(missing), plan):
            self._hold_back(len(missing), plan)
            missing = []
        await self._remove([*moved, *missing])

    def _hold_back(self, missing: int, plan: Plan) -> None:
        self._tally.held_back = missing
        self._tally.problem = (
            f"{missing} of {plan.known} files are missing, more than half: their documents were not removed. "
            f"If this is intended: {self._command}"
        )

    async def _remove(self, documents: Sequence[Document]) -> None:
        if documents:
            self._begin_step(SyncStep.REMOVING, len(documents))
        for document in documents:
            try:
                await self._patience.call(lambda: self._knowledge.erase(document.document_id))  # noqa: B023
            except UnavailableError:
                self._tally.not_reached += 1
            else:
                self._tally.removed += 1
            self._advance()
