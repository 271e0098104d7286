"""Repair stored conversations: link turns without a parent, and fill in what earlier versions did not write.

`python -m scripts.backfill_parent_turns` shows what would change, `--apply` writes it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.maintenance import (
    EXIT_OK,
    CommandError,
    add_server_options,
    ask_server,
    print_table,
    run,
    server_of,
    time_zone,
)

if TYPE_CHECKING:
    from config.settings import Settings
    from services.backfill import Backfill
    from services.backfill_plan import BackfillPlan, BackfillReport


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done (also when there is nothing to repair), 1 failed, 2 refused."""
    options = _parse(arguments)
    return run(lambda settings: _repair(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.backfill_parent_turns", description=__doc__)
    parser.add_argument("--apply", action="store_true", help="write; without it nothing is changed")
    parser.add_argument(
        "--assume-timezone", type=time_zone, default="UTC", metavar="ZONE",
        help="for stored times without a zone, such as Asia/Shanghai (default: UTC)",
    )  # fmt: skip
    parser.add_argument("--owner", default="local", help="owner of turns that have none (default: local)")
    parser.add_argument("--session", metavar="ID", help="only this session")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the plan, every change in it, to FILE"
    )
    add_server_options(parser)
    return parser.parse_args(arguments)


async def _repair(settings: Settings, options: argparse.Namespace) -> int:
    from api.container import open_maintenance
    from core.errors import StoreLockedError

    try:
        async with open_maintenance(settings) as maintenance:
            report = await _repair_here(maintenance.backfill, options)
    except StoreLockedError:
        report = await _repair_there(settings, options)
    _print_report(report)
    if options.session and not report.sessions:
        raise CommandError(f"there is no turn of session {options.session!r}")
    return EXIT_OK


async def _repair_here(backfill: Backfill, options: argparse.Namespace) -> BackfillReport:
    plan = await backfill.plan(options.assume_timezone, options.owner, options.session)
    _save(options.json, plan)
    if not options.apply:
        return plan.report()
    from tqdm import tqdm

    with tqdm(total=plan.writes, unit="turn", disable=None) as bar:
        return await backfill.apply(plan, bar.update)


async def _repair_there(settings: Settings, options: argparse.Namespace) -> BackfillReport:
    """The server answers with the report; its plan stays there."""
    from services.backfill_plan import BackfillReport

    params = {
        "dry_run": str(not options.apply).lower(),
        "assume_timezone": options.assume_timezone,
        "owner": options.owner,
    }
    if options.session:
        params["session_id"] = options.session
    server = server_of(settings, options.url, options.api_key)
    report = await ask_server(server, "/admin/backfill", params, BackfillReport)
    _save(options.json, report)
    return report


def _save(path: Path | None, plan: BackfillPlan | BackfillReport) -> None:
    if path is not None:
        import json
        from dataclasses import asdict

        path.write_text(json.dumps(asdict(plan), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _print_report(report: BackfillReport) -> None:
    rows: list[tuple[str, int | str]] = [
        ("sessions", report.sessions),
        ("turns", report.turns),
        ("turns to change" if report.dry_run else "turns changed", report.changed - report.gone),
        ("moved to their turn id", report.rehomed),
        ("copies left by a run that was cut", report.leftovers),
        ("sessions added to the list", report.sessions_created),
    ]
    rows += [(f"  {name}", count) for name, count in report.repairs.items()]
    rows += [
        ("kept, time not readable", report.unparsable),
        ("kept, turn id of another turn", report.duplicates),
        ("left alone, no session", report.unreadable),
        ("not listed, session id is no UUID", report.unlisted),
    ]
    print_table(rows)
    if report.nothing_to_do:
        print("There is nothing to repair.")
    elif report.dry_run:
        print("Nothing was changed: add --apply to write.")


if __name__ == "__main__":
    sys.exit(main())
