"""Repair in this process, which has the store open."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.backfill_report import read_plan, save_plan
from scripts.maintenance import EXIT_REFUSED, CommandError
from services.clock import utc_now_us
from services.repair.plan import BackfillOptions
from services.repair.undo_file import UndoFile, new_undo_file

if TYPE_CHECKING:
    from config.settings import Settings
    from services.repair.backfill import Backfill
    from services.repair.importing import ImportReport
    from services.repair.plan import BackfillPlan, BackfillReport
    from services.repair.undo import UndoReport
    from services.repair.writing import Progress


class RepairHere:
    def __init__(self, settings: Settings, options: argparse.Namespace, backfill: Backfill) -> None:
        self._folder = settings.store.data_dir
        self._options = options
        self._backfill = backfill

    async def repair(self) -> BackfillReport:
        options = self._options
        plan = await (self._saved_plan(options.plan) if options.plan else self._plan(self._wanted()))
        if options.json is not None:
            save_plan(options.json, plan)
        if not options.apply:
            return plan.report()
        embed = not options.no_embed
        with _progress(plan.writes + (len(plan.lacking) if embed else 0)) as told:
            return await self._backfill.apply(plan, told, undo=self._undo_file(), embed=embed)

    async def import_from(self, source: str) -> ImportReport:
        options = self._options
        plan = await self._backfill.plan_import(source, self._wanted())
        if options.json is not None:
            save_plan(options.json, plan.repair)
        if not options.apply:
            return plan.report()
        with _progress(plan.writes) as told:
            return await self._backfill.apply_import(
                plan, told, undo=self._undo_file(), embed=not options.no_embed
            )

    async def undo(self, file: Path) -> UndoReport:
        """A bare name that is not here is looked for in DATA_DIR, where the files are made."""
        path = _found(file, self._folder)
        with _progress(None) as told:
            return await self._backfill.undo(path, told, dry_run=not self._options.apply)

    def _wanted(self) -> BackfillOptions:
        options = self._options
        return BackfillOptions(
            options.assume_timezone, options.owner, options.session, options.drop_duplicates
        )

    async def _plan(self, wanted: BackfillOptions) -> BackfillPlan:
        return await self._backfill.plan(
            wanted.assume_timezone, wanted.owner, wanted.session_id, drop_duplicates=wanted.drop_duplicates
        )

    async def _saved_plan(self, path: Path) -> BackfillPlan:
        saved = read_plan(path)
        plan = await self._plan(BackfillOptions(**saved.options))
        if not saved.says(plan):
            raise CommandError(
                f"what is stored has changed since {path} was written: plan again with --json", EXIT_REFUSED
            )
        return plan

    def _undo_file(self) -> UndoFile:
        if self._options.undo_file is not None:
            return UndoFile(self._options.undo_file, self._backfill.collection)
        return new_undo_file(self._folder, self._backfill.collection, utc_now_us())


def _found(file: Path, folder: Path) -> Path:
    return folder / file if file == Path(file.name) and not file.exists() else file


@contextmanager
def _progress(total: int | None) -> Iterator[Progress]:
    from tqdm import tqdm

    with tqdm(total=total, unit="turn", disable=None) as bar:
        yield bar.update
