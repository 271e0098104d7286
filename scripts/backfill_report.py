"""What scripts.backfill_parent_turns prints and saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.commands.maintenance import EXIT_REFUSED, CommandError, print_table

if TYPE_CHECKING:
    from services.operations.repair.importing import ImportReport
    from services.operations.repair.plan import BackfillPlan, BackfillReport

TROUBLES = {
    "missing_turn_id": "turns without turn id",
    "other_turn_id": "turn id is not the point's",
    "duplicate_turn_id": "turn id of another turn",
    "duplicate_turn": "turns stored twice",
    "missing_parent": "turns without parent",
    "dangling_parent": "parent does not exist",
    "parent_of_other_session": "parent of another session",
    "parent_cycle": "parents in a circle",
    "later_parent": "parent later than the turn",
    "renamed_parent": "parent called by a former id",
    "naive_timestamp": "times without a zone",
    "mixed_zones": "sessions with and without zones",
    "unparsable_time": "times that cannot be read",
    "missing_fields": "turns without newer fields",
    "missing_vectors": "turns without vectors",
    "session_without_record": "sessions not in the list",
    "no_session": "points without session",
}
Row = tuple[str, int | str]


def print_report(report: BackfillReport, *, embed: bool) -> None:
    print_table([*_trouble_rows(report), *_done(report)])
    if report.foreign_vectors:
        from services.store.collections import REEMBED_COMMAND

        print(f"The vectors are not the configured embedding's: after this, run `{REEMBED_COMMAND}`.")
    elif report.lacking and not embed:
        print("Vectors were left out: the next start of the server makes them.")
    _print_backup(report.backup)
    if report.skipped:
        print("Some turns changed in the meantime and were left as they are: run this again.")
    if report.nothing_to_do and not (embed and report.lacking):
        print("There is nothing to repair.")
    elif report.dry_run:
        print("Nothing was changed: add --apply to write.")


def _trouble_rows(report: BackfillReport) -> list[Row]:
    """Every kind of trouble is named, so that it is seen what was looked for."""
    rows: list[Row] = [("sessions", report.sessions), ("turns", report.turns)]
    return rows + [(f"  {label}", report.troubles.get(name, 0)) for name, label in TROUBLES.items()]


def _done(report: BackfillReport) -> list[Row]:
    done: list[Row] = [
        (
            "turns to change" if report.dry_run else "turns changed",
            report.changed - report.deleted - report.skipped,
        ),
        ("  moved to their turn id", report.rehomed),
    ]
    done += [(f"  {name}", count) for name, count in report.repairs.items()]
    done += [
        ("copies left by a run that was cut", report.leftovers),
        ("duplicate turns to delete" if report.dry_run else "duplicate turns deleted", report.dropped),
        ("turns embedded", report.embedded),
        ("sessions added to the list", report.sessions_created),
        ("not listed, session id is no UUID", report.unlisted),
        ("changed meanwhile, left alone", report.skipped),
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
        print("Vectors were left out: the next start of the server makes them.")
    _print_backup(report.backup)
    if report.turns == report.existing:
        print("There is nothing to import.")
    elif report.dry_run:
        print("Nothing was changed: add --apply to write.")


def _print_backup(name: str) -> None:
    if name:
        print(f"The store as it was before is in the backup {name}.")


def save_plan(path: Path, plan: BackfillPlan) -> None:
    """Every finding with its ids and values, every change with the turn before it."""
    import json
    from dataclasses import asdict

    content = {**asdict(plan), "report": asdict(plan.report())}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def check_writable(path: Path) -> None:
    """Raises OSError, before anything else is done."""
    existed = path.exists()
    with path.open("a", encoding="utf-8"):
        pass
    if not existed:
        path.unlink()


@dataclass(frozen=True)
class SavedPlan:
    """A file that `save_plan` wrote."""

    content: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of Backfill.plan that it was made with."""
        return dict(self.content["options"])

    def says(self, plan: BackfillPlan) -> bool:
        """Whether this is the same plan, with every turn as it was then."""
        import json
        from dataclasses import asdict

        fresh: dict[str, Any] = json.loads(json.dumps(asdict(plan)))
        return {name: value for name, value in self.content.items() if name in fresh} == fresh


def read_plan(path: Path) -> SavedPlan:
    import json

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        saved = SavedPlan(content)
        saved.options["drop_duplicates"]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is not a plan that --json wrote", EXIT_REFUSED) from error
    return saved
