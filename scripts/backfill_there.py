"""Repair in the running server that has the store open: it is asked, and answers with the report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.backfill_report import save_plan
from scripts.maintenance import EXIT_REFUSED, CommandError, ask_server, server_of
from services.repair.importing import ImportReport
from services.repair.plan import BackfillReport
from services.repair.undo import UndoReport
from services.repair.undo_file import UNDO_NAME

if TYPE_CHECKING:
    from config.settings import Settings


class RepairThere:
    """Raises CommandError for what a server is not asked to do: it reads and writes no file of a request."""

    def __init__(self, settings: Settings, options: argparse.Namespace) -> None:
        self._server = server_of(settings, options.url, options.api_key)
        self._folder = settings.store.data_dir
        self._options = options

    async def repair(self) -> BackfillReport:
        self._refuse_files()
        asked = {**self._asked(), "details": _word(self._options.json is not None)}
        report = await ask_server(self._server, "/admin/backfill", asked, BackfillReport)
        self._save(report)
        return report

    async def import_from(self, source: str) -> ImportReport:
        self._refuse_files()
        if self._options.json is not None:
            raise _refused("--json with --import-from")
        asked = {**self._asked(), "collection": source}
        return await ask_server(self._server, "/admin/backfill/import", asked, ImportReport)

    async def undo(self, file: Path) -> UndoReport:
        """The server looks for the name in its own DATA_DIR."""
        if not _is_in(file, self._folder) or UNDO_NAME.fullmatch(file.name) is None:
            raise _refused("--undo with a file that is not in DATA_DIR, or has another name,")
        asked = {"file": file.name, "dry_run": _word(not self._options.apply), "reason": "command"}
        return await ask_server(self._server, "/admin/backfill/undo", asked, UndoReport)

    def _asked(self) -> dict[str, str]:
        options = self._options
        asked = {
            "dry_run": _word(not options.apply),
            "assume_timezone": options.assume_timezone,
            "owner": options.owner,
            "drop_duplicates": _word(options.drop_duplicates),
            "embed": _word(not options.no_embed),
            "reason": "command",
        }
        return {**asked, "session_id": options.session} if options.session else asked

    def _refuse_files(self) -> None:
        for name in ("plan", "undo_file"):
            if getattr(self._options, name) is not None:
                raise _refused(f"--{name.replace('_', '-')}")

    def _save(self, report: BackfillReport) -> None:
        if self._options.json is not None and report.plan is not None:
            save_plan(self._options.json, report.plan)


def _is_in(file: Path, folder: Path) -> bool:
    return file == Path(file.name) or file.resolve().parent == folder.resolve()


def _word(flag: bool) -> str:
    return str(flag).lower()


def _refused(what: str) -> CommandError:
    return CommandError(f"{what} needs the store to itself: stop the server first", EXIT_REFUSED)
