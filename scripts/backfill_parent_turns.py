"""Repair stored conversations: find and fix what earlier versions, imports and crashes left behind.

`wenmai repair` shows what would change; `--apply` makes a backup in BACKUP_DIR, then
writes. `--import-from` copies the turns of an old collection into the conversations.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.errors import BadRequestError, NotFoundError
from core.operations.backfill_turns import BackfillOptions, BackfillPlan, BackfillReport, ImportReport
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    invoke,
    one_of,
    print_result,
    print_table,
    run,
    time_zone,
)
from scripts.commands.server import Server, ServerClient, at_store, at_url, open_client, open_here

if TYPE_CHECKING:
    from api.container import History
    from api.offline.holders import StoreContents
    from config.settings import Settings


TROUBLES = {
    "missing_turn_id": "turns without turn id",
    "other_turn_id": "turn id is not the point's",
    "duplicate_turn_id": "turn id of another turn",
    "duplicate_turn": "turns stored twice",
    "missing_parent": "turns without parent",
    "dangling_parent": "parent does not exist",
    "parent_of_other_session": "parent of another session",
    "parent_cycle": "parents in a cycle",
    "later_parent": "parent later than the turn",
    "renamed_parent": "parent named by a former id",
    "naive_timestamp": "times without a zone",
    "mixed_zones": "sessions with and without zones",
    "unparsable_time": "times that cannot be read",
    "missing_fields": "turns without newer fields",
    "missing_vectors": "turns without vectors",
    "session_without_record": "sessions not in the list",
    "no_session": "points without session",
    "document_not_searched": "documents ready, not searched",
}
Row = tuple[str, int | str]


@click.command("repair", help=__doc__)
@click.option("--apply", is_flag=True, help="Write; without it nothing is changed.")
@click.option(
    "--assume-timezone",
    type=time_zone,
    default="UTC",
    metavar="ZONE",
    help="For stored times without a zone, such as Asia/Shanghai (default: UTC).",
)
@click.option("--owner", default="local", help="Owner of turns that have none (default: local).")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option(
    "--drop-duplicates",
    is_flag=True,
    help="Keep only one of turns with the same session, question, answer and time.",
)
@click.option("--no-embed", is_flag=True, help="Leave missing vectors to the next start of the server.")
@click.option(
    "--save-plan", type=Path, metavar="FILE", help="Write the plan, with every change, to FILE as JSON."
)
@click.option("--no-backup", is_flag=True, help="With --apply, write without making a backup first.")
@click.option(
    "--plan", type=Path, metavar="FILE", help="Only if the plan is still the one that --save-plan wrote."
)
@click.option("--import-from", metavar="COLLECTION", help="Copy the turns of an old collection.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Accept what is left of a damaged store as complete; stop the server first.",
)
@as_json
@at_url
def repair(**options: Any) -> int:
    one_of(Options(**options), "plan", "import_from", "accept_loss")
    return run(_repair, Options(**options))


async def _repair(settings: Settings, options: Options) -> int:
    async def here() -> int:
        async with open_here(settings) as (history, _):
            if options.accept_loss:
                return await _accept_loss(history, options)
            return await _finish(RepairHere(options, history), options)

    async def by_server(server: Server, _: StoreContents) -> int:
        if options.accept_loss or options.plan is not None:
            raise _refused("--accept-loss" if options.accept_loss else "--plan")
        async with open_client(server) as client:
            return await _finish(RepairByServer(client, options), options)

    if options.save_plan is not None:
        check_writable(options.save_plan)
    try:
        return await at_store(settings, options, here, by_server)
    except (BadRequestError, NotFoundError) as error:
        raise CommandError(str(error), EXIT_REFUSED) from error


async def _accept_loss(history: History, options: Options) -> int:
    lost = await history.accept_loss()
    sentence = "\n".join(lost) or "Nothing is lost."
    print_result({"lost": lost}, options, lambda _: print(sentence))
    return EXIT_OK


async def _finish(job: RepairHere | RepairByServer, options: Options) -> int:
    embed = not options.no_embed
    if options.import_from is not None:
        imported = await job.import_from(options.import_from)
        print_result(imported, options, partial(print_import, embed=embed))
        return EXIT_OK
    report = await job.repair()
    print_result(report, options, partial(print_report, embed=embed))
    if options.session and not report.sessions:
        raise CommandError(f"there is no turn of session {options.session!r}")
    return EXIT_OK


# Repair in this process, which opens the store.


class RepairHere:
    def __init__(self, options: Options, maintenance: History) -> None:
        self._options = options
        self._backfill = maintenance.backfill

    async def repair(self) -> BackfillReport:
        options = self._options
        plan = await (
            self._saved_plan(options.plan) if options.plan else self._backfill.plan(self._plan_options())
        )
        if options.save_plan is not None:
            save_plan(options.save_plan, plan)
        if not options.apply:
            return plan.report()
        embed = not options.no_embed
        with _progress(plan.writes + (len(plan.lacking) if embed else 0)) as on_progress:
            return await self._backfill.apply(plan, on_progress, backup=not options.no_backup, embed=embed)

    async def import_from(self, source: str) -> ImportReport:
        options = self._options
        plan = await self._backfill.plan_import(source, self._plan_options())
        if options.save_plan is not None:
            save_plan(options.save_plan, plan.repair)
        if not options.apply:
            return plan.report()
        with _progress(plan.writes) as on_progress:
            return await self._backfill.apply_import(
                plan, on_progress, backup=not options.no_backup, embed=not options.no_embed
            )

    def _plan_options(self) -> BackfillOptions:
        options = self._options
        return BackfillOptions(
            options.assume_timezone, options.owner, options.session, options.drop_duplicates
        )

    async def _saved_plan(self, path: Path) -> BackfillPlan:
        saved = read_plan(path)
        plan = await self._backfill.plan(BackfillOptions(**saved["options"]))
        if not is_same(plan, saved):
            raise CommandError(
                f"what is stored has changed since {path} was written: plan again with --save-plan",
                EXIT_REFUSED,
            )
        return plan


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    with tqdm(total=total, unit="turn", disable=None) as bar:
        yield bar.update


# Repair by the running server that has the store open: it does the work and returns the report.


class RepairByServer:
    """Raises CommandError for options a server does not support: no request makes it read or write a file."""

    def __init__(self, client: ServerClient, options: Options) -> None:
        self._client = client
        self._options = options

    async def repair(self) -> BackfillReport:
        from pydantic import TypeAdapter

        from routes.wire.operations import Repair

        asked = {**self._params(), "details": self._options.save_plan is not None}
        reply = await self._client.send("POST", "/admin/backfill", Repair, None, **asked)
        plan = TypeAdapter(BackfillPlan).validate_python(reply.plan) if reply.plan else None
        report = BackfillReport(**{**reply.model_dump(), "plan": plan})
        if self._options.save_plan is not None and report.plan is not None:
            save_plan(self._options.save_plan, report.plan)
        return report

    async def import_from(self, source: str) -> ImportReport:
        from routes.wire.operations import CollectionImport

        if self._options.save_plan is not None:
            raise _refused("--save-plan with --import-from")
        asked = {**self._params(), "collection": source}
        reply = await self._client.send("POST", "/admin/backfill/import", CollectionImport, None, **asked)
        return ImportReport(**reply.model_dump())

    def _params(self) -> dict[str, str | int]:
        options = self._options
        asked = {
            "dry_run": not options.apply,
            "assume_timezone": options.assume_timezone,
            "owner": options.owner,
            "drop_duplicates": options.drop_duplicates,
            "embed": not options.no_embed,
            "backup": not options.no_backup,
            "reason": "command",
        }
        return {**asked, "session_id": options.session} if options.session else asked


def _refused(what: str) -> CommandError:
    return CommandError(f"{what} needs exclusive access to the store: stop the server first", EXIT_REFUSED)


# Printing and saving.


def print_report(report: BackfillReport, *, embed: bool) -> None:
    print_table([*_trouble_rows(report), *_done(report, embed=embed)])
    if report.foreign_vectors:
        print("The vectors are not the configured embedding's: after this, run `wenmai reembed`.")
    elif report.lacking and not embed:
        print("Vectors were left out: the next start of the server computes them.")
    _print_backup(report.backup)
    if report.embedded and report.nothing_to_do:
        print("Only vectors were computed, from stored text, so no backup was made.")
    if report.skipped:
        print("Some turns changed in the meantime and were left as they are: run this again.")
    if report.nothing_to_do and not (embed and report.lacking):
        print("There is nothing to repair.")
    elif report.dry_run:
        print("Nothing was changed: add --apply to write.")


def _trouble_rows(report: BackfillReport) -> list[Row]:
    """List every kind of trouble, also those without hits, to show what was checked."""
    rows: list[Row] = [("sessions", report.sessions), ("turns", report.turns)]
    return rows + [(f"  {label}", report.troubles.get(name, 0)) for name, label in TROUBLES.items()]


def _done(report: BackfillReport, *, embed: bool) -> list[Row]:
    done: list[Row] = [
        (
            "turns to change" if report.dry_run else "turns changed",
            report.changed - report.deleted - report.skipped,
        ),
        ("  moved to their turn id", report.rehomed),
    ]
    done += [(f"  {name}", count) for name, count in report.repairs.items()]
    done += [
        ("copies left by an interrupted run", report.leftovers),
        ("duplicate turns to delete" if report.dry_run else "duplicate turns deleted", report.dropped),
        ("turns to embed", report.lacking if embed else 0)
        if report.dry_run
        else ("turns embedded", report.embedded),
        ("sessions added to the list", report.sessions_created),
        ("documents to repair" if report.dry_run else "documents mended", report.documents),
        ("not listed, session id is not a UUID", report.unlisted),
        ("changed in the meantime, left alone", report.skipped),
    ]
    return done


def print_import(report: ImportReport, *, embed: bool) -> None:
    print_table(
        [
            (f"turns of {report.source}", report.turns),
            ("  there already", report.existing),
            ("  not readable, left out", report.unreadable),
            ("  copies and duplicates, left out", report.left_out),
            *((f"  {TROUBLES.get(name, name)}", count) for name, count in report.troubles.items()),
            ("turns added", report.added),
            ("turns embedded", report.embedded),
            ("sessions added to the list", report.sessions_created),
        ]
    )
    if report.added > report.embedded and not embed:
        print("Vectors were left out: the next start of the server computes them.")
    _print_backup(report.backup)
    if report.turns == report.existing:
        print("There is nothing to import.")
    elif report.dry_run:
        print("Nothing was changed: add --apply to write.")


def _print_backup(name: str) -> None:
    if name:
        print(f"The store as it was before is in the backup {name}.")


def save_plan(path: Path, plan: BackfillPlan) -> None:
    """Save every finding with its ids and values, and every change with the turn as it was before."""
    content = {**asdict(plan), "report": asdict(plan.report())}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def check_writable(path: Path) -> None:
    """Raises CommandError before anything else is done."""
    existed = path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise CommandError(f"--save-plan {path} cannot be written: {error.strerror}", EXIT_REFUSED) from error
    if not existed:
        path.unlink()


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan of `save_plan`, with the `options` it was made with. Raises CommandError."""
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        saved["options"]["drop_duplicates"]
    except OSError as error:
        raise CommandError(f"--plan {path} cannot be read: {error.strerror}", EXIT_REFUSED) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is not a plan that --save-plan wrote", EXIT_REFUSED) from error
    return saved


def is_same(plan: BackfillPlan, saved: dict[str, Any]) -> bool:
    """Whether this equals the saved plan, with every turn as it was then."""
    fresh: dict[str, Any] = json.loads(json.dumps(asdict(plan)))
    return {name: value for name, value in saved.items() if name in fresh} == fresh


if __name__ == "__main__":
    sys.exit(invoke(repair))
